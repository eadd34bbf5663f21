"""Speech recognition: the spectrogram in front, the encoder and the decoder."""

import torch
import whisper
from models import DTYPE, array, filled, integers, several
from whisper.audio import log_mel_spectrogram, pad_or_trim
from whisper.model import AudioEncoder, ModelDimensions, TextDecoder


# Its layer norms compute in float32 whatever the input is: the models are of that dtype as a whole.
def sound(*shape, seed=0):
    return array(*shape, seed=seed).float()


def encoder():
    model = AudioEncoder(n_mels=8, n_ctx=10, n_state=16, n_head=4, n_layer=2)
    return filled(model).float().eval(), sound(2, 8, 20)


def decoder():
    model = (
        filled(TextDecoder(n_vocab=30, n_ctx=12, n_state=16, n_head=4, n_layer=2)).float().eval()
    )
    return lambda heard, tokens: model(tokens, heard), sound(2, 10, 16), integers(30, 2, 7)


def whole():
    size = ModelDimensions(
        n_mels=8, n_audio_ctx=10, n_audio_state=16, n_audio_head=4, n_audio_layer=1,
        n_vocab=30, n_text_ctx=12, n_text_state=16, n_text_head=4, n_text_layer=1,
    )  # fmt: skip
    return filled(whisper.model.Whisper(size)).float().eval(), sound(2, 8, 20), integers(30, 2, 7)


def spectrogram(bands):
    def call(x):
        torch.set_default_dtype(
            torch.float32
        )  # that of the filters, which a file of the package holds
        try:
            return log_mel_spectrogram(x.detach(), bands)
        finally:
            torch.set_default_dtype(DTYPE)

    return lambda: (call, sound(4000))


several(
    "whisper",
    spectrogram=spectrogram(80),
    spectrogram_of_128=spectrogram(128),
    padded=lambda: (lambda x: pad_or_trim(x, 5000), array(4000)),
    encoder=encoder,
    decoder=decoder,
    whole=whole,
)
