import os
import tempfile

import numpy as np
import torch
import transformers as t
from models import array, case, filled, integers, numbers_of_numpy, several

t.logging.set_verbosity_error()
SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
EAGER = {"experts_implementation": "eager"}  # PyTorch's grouped_mm takes no float64
TOKENS = {"vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
ENCODER_DECODER = {
    **TOKENS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}

DECODERS = {
    "gpt2": lambda: t.GPT2Config(
        **TOKENS, n_embd=32, n_layer=2, n_head=4, n_positions=64, n_inner=48
    ),
    "gpt_neo": lambda: t.GPTNeoConfig(
        **TOKENS,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=8,
        max_position_embeddings=64,
    ),
    "gptj": lambda: t.GPTJConfig(
        **TOKENS, n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4
    ),
    "gpt_neox": lambda: t.GPTNeoXConfig(**SMALL),
    "codegen": lambda: t.CodeGenConfig(
        **TOKENS, n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4
    ),
    "opt": lambda: t.OPTConfig(**SMALL, ffn_dim=48, word_embed_proj_dim=32),
    "bloom": lambda: t.BloomConfig(**TOKENS, hidden_size=32, n_layer=2, n_head=4),
    "falcon": lambda: t.FalconConfig(**SMALL),
    "llama": lambda: t.LlamaConfig(**GROUPED),
    "mistral": lambda: t.MistralConfig(**GROUPED, sliding_window=8),
    "mixtral": lambda: t.MixtralConfig(
        **GROUPED, **EAGER, num_local_experts=4, num_experts_per_tok=2
    ),
    "qwen2": lambda: t.Qwen2Config(**GROUPED),
    "qwen3": lambda: t.Qwen3Config(**GROUPED, head_dim=8),
    "qwen2_moe": lambda: t.Qwen2MoeConfig(
        **GROUPED,
        **EAGER,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    ),
    "gemma": lambda: t.GemmaConfig(**GROUPED, head_dim=8),
    "gemma2": lambda: t.Gemma2Config(**GROUPED, head_dim=8, sliding_window=8),
    "gemma3": lambda: t.Gemma3TextConfig(**GROUPED, head_dim=8, sliding_window=8),
    "phi": lambda: t.PhiConfig(**SMALL),
    "phi3": lambda: t.Phi3Config(**GROUPED),
    "olmo": lambda: t.OlmoConfig(**GROUPED),
    "olmo2": lambda: t.Olmo2Config(**GROUPED),
    "stablelm": lambda: t.StableLmConfig(**GROUPED),
    "starcoder2": lambda: t.Starcoder2Config(**GROUPED),
    "cohere": lambda: t.CohereConfig(**GROUPED),
    "granite": lambda: t.GraniteConfig(**GROUPED),
    "smollm3": lambda: t.SmolLM3Config(**GROUPED),
    "mamba": lambda: t.MambaConfig(**TOKENS, hidden_size=32, num_hidden_layers=2, state_size=4),
    "rwkv": lambda: t.RwkvConfig(
        **TOKENS, hidden_size=32, num_hidden_layers=2, attention_hidden_size=32
    ),
}
SEQUENCE_TO_SEQUENCE = {
    "t5": lambda: t.T5Config(
        **TOKENS,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        dropout_rate=0.0,
    ),
    "bart": lambda: t.BartConfig(**ENCODER_DECODER, dropout=0.0),
    "mbart": lambda: t.MBartConfig(**ENCODER_DECODER, dropout=0.0),
    "pegasus": lambda: t.PegasusConfig(**ENCODER_DECODER, dropout=0.0),
    "marian": lambda: t.MarianConfig(**ENCODER_DECODER, dropout=0.0),
}
ENCODERS = {
    "bert": (t.BertForMaskedLM, lambda: t.BertConfig(**SMALL, **NO_DROPOUT)),
    "bert_classifier": (
        t.BertForSequenceClassification,
        lambda: t.BertConfig(**SMALL, num_labels=3),
    ),
    "bert_tagger": (t.BertForTokenClassification, lambda: t.BertConfig(**SMALL, num_labels=3)),
    "bert_answers": (t.BertForQuestionAnswering, lambda: t.BertConfig(**SMALL)),
    "roberta": (t.RobertaForMaskedLM, lambda: t.RobertaConfig(**SMALL)),
    "distilbert": (
        t.DistilBertForMaskedLM,
        lambda: t.DistilBertConfig(**TOKENS, dim=32, n_layers=2, n_heads=4, hidden_dim=48),
    ),
    "albert": (t.AlbertForMaskedLM, lambda: t.AlbertConfig(**SMALL, embedding_size=16)),
    "electra": (t.ElectraForPreTraining, lambda: t.ElectraConfig(**SMALL, embedding_size=16)),
    "deberta_v2": (
        t.DebertaV2Model,
        lambda: t.DebertaV2Config(
            **SMALL,
            relative_attention=True,
            pos_att_type=["p2c", "c2p"],
            position_biased_input=False,
        ),
    ),
    "mpnet": (t.MPNetModel, lambda: t.MPNetConfig(**SMALL)),
    "modernbert": (
        t.ModernBertModel,
        lambda: t.ModernBertConfig(
            **SMALL, cls_token_id=3, sep_token_id=4, local_attention=8, global_attn_every_n_layers=2
        ),
    ),
    "xlnet": (
        t.XLNetModel,
        lambda: t.XLNetConfig(vocab_size=64, d_model=32, n_layer=2, n_head=4, d_inner=48),
    ),
    "longformer": (t.LongformerModel, lambda: t.LongformerConfig(**SMALL, attention_window=4)),
}
IMAGE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 5,
}
VISION = {
    "vit": (t.ViTForImageClassification, lambda: t.ViTConfig(**IMAGE)),
    "deit": (t.DeiTForImageClassification, lambda: t.DeiTConfig(**IMAGE)),
    "beit": (t.BeitForImageClassification, lambda: t.BeitConfig(**IMAGE)),
    "dinov2": (t.Dinov2ForImageClassification, lambda: t.Dinov2Config(**IMAGE)),
    "siglip_vision": (t.SiglipVisionModel, lambda: t.SiglipVisionConfig(**IMAGE)),
    "clip_vision": (t.CLIPVisionModel, lambda: t.CLIPVisionConfig(**IMAGE)),
    "swin": (
        t.SwinForImageClassification,
        lambda: t.SwinConfig(
            image_size=32,
            patch_size=4,
            embed_dim=16,
            depths=[1, 1],
            num_heads=[2, 2],
            window_size=4,
            num_labels=5,
        ),
    ),
    "convnext": (
        t.ConvNextForImageClassification,
        lambda: t.ConvNextConfig(
            hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, num_labels=5, image_size=32
        ),
    ),
    "resnet": (
        t.ResNetForImageClassification,
        lambda: t.ResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 16],
            depths=[1, 1],
            layer_type="basic",
            num_labels=5,
        ),
    ),
    "segformer": (
        t.SegformerForSemanticSegmentation,
        lambda: t.SegformerConfig(
            num_encoder_blocks=2,
            depths=[1, 1],
            sr_ratios=[2, 1],
            hidden_sizes=[8, 16],
            patch_sizes=[3, 3],
            strides=[2, 2],
            num_attention_heads=[1, 2],
            mlp_ratios=[2, 2],
            decoder_hidden_size=16,
            num_labels=5,
        ),
    ),
}


class WithLabels(torch.nn.Module):
    """A language model that is asked for its loss, too."""

    def __init__(self, model, **more):
        super().__init__()
        self.model, self.more = model, more

    def forward(self, tokens):
        return self.model(tokens, labels=tokens, use_cache=False, **self.more)


def model_of(kind, make):
    """A model of a class, or of one of the Auto classes."""
    torch.manual_seed(0)
    return filled(kind.from_config(make()) if hasattr(kind, "from_config") else kind(make())).eval()


def tokens(*shape, seed=0):
    return integers(60, *shape, seed=seed) + 3


def loss(kind, make):
    return lambda: (WithLabels(model_of(kind, make)), tokens(2, 12))


def generated(kind, make, prompts=2, **options):
    """Continuations of prompts; `sampled` draws with NumPy's numbers."""

    def call(prompt):
        model = model_of(kind, make)
        with numbers_of_numpy():
            return model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=10, **options
            )

    return lambda: (call, tokens(prompts, 5))


WAYS = {
    "greedy": {"do_sample": False},
    "beam": {"do_sample": False, "num_beams": 3},
    "sampled": {"do_sample": True, "top_k": 20, "top_p": 0.9, "temperature": 0.8},
}
for kind, family in (
    (t.AutoModelForCausalLM, DECODERS),
    (t.AutoModelForSeq2SeqLM, SEQUENCE_TO_SEQUENCE),
):
    for name, make in family.items():
        several("transformers", **{name: loss(kind, make)})
        for way, options in WAYS.items():
            if (name, way) != ("rwkv", "beam"):  # its states cannot be reordered
                several("transformers", **{f"{name}_{way}": generated(kind, make, **options)})

LLAMA = t.AutoModelForCausalLM, DECODERS["llama"]
several(
    "transformers",
    **{
        name: (lambda kind, make: lambda: (model_of(kind, make), tokens(2, 12)))(*parts)
        for name, parts in ENCODERS.items()
    },
    **{
        name: (lambda kind, make: lambda: (model_of(kind, make), array(2, 3, 32, 32)))(*parts)
        for name, parts in VISION.items()
    },
    several_samples=generated(*LLAMA, do_sample=True, num_return_sequences=3),
    typical_sampling=generated(*LLAMA, do_sample=True, typical_p=0.8, top_k=0),
    smallest_probability=generated(*LLAMA, do_sample=True, min_p=0.02, top_k=0),
    beam_sampling=generated(*LLAMA, do_sample=True, num_beams=3),
    penalised=generated(*LLAMA, repetition_penalty=1.5, no_repeat_ngram_size=2),
    static_cache=generated(*LLAMA, cache_implementation="static"),
    without_cache=generated(*LLAMA, use_cache=False),
    assisted=generated(*LLAMA, prompts=1, prompt_lookup_num_tokens=2),
)


@case("transformers")
def padded_prompts():
    def call(prompt):
        model = model_of(*LLAMA)
        mask = torch.ones_like(prompt)
        mask[0, :3] = 0
        return model.generate(
            prompt.masked_fill(mask == 0, 0), attention_mask=mask, max_new_tokens=8, do_sample=False
        )

    return call, tokens(2, 6)


@case("transformers")
def scores_of_generation():
    def call(prompt):
        found = model_of(*LLAMA).generate(
            prompt,
            max_new_tokens=4,
            do_sample=False,
            output_scores=True,
            return_dict_in_generate=True,
            output_attentions=True,
        )
        return found.sequences, list(found.scores)

    return call, tokens(2, 6)


@case("transformers")
def clip():
    text = {**SMALL, "projection_dim": 16}
    vision = {k: v for k, v in IMAGE.items() if k != "num_labels"}
    config = t.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    model = model_of(t.CLIPModel, lambda: config)

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, images):
            found = self.model(input_ids=tokens(3, 7), pixel_values=images, return_loss=True)
            return found.loss, found.logits_per_image, found.text_embeds

    return Loss(), array(3, 3, 32, 32)


@case("transformers")
def whisper():
    config = t.WhisperConfig(
        **ENCODER_DECODER, num_mel_bins=8, max_source_positions=16, max_target_positions=32
    )
    model = model_of(t.WhisperForConditionalGeneration, lambda: config)

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, sound):
            found = self.model(input_features=sound, labels=tokens(2, 6))
            return found.loss, found.logits

    return Loss(), array(2, 8, 32)


@case("transformers")
def wav2vec2():
    config = t.Wav2Vec2Config(
        **SMALL,
        conv_dim=(16, 16),
        conv_kernel=(10, 3),
        conv_stride=(5, 2),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        apply_spec_augment=False,
    )
    return model_of(t.Wav2Vec2ForCTC, lambda: config), array(2, 400)


@case("transformers")
def a_saved_model_is_loaded():
    model = model_of(*LLAMA)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, max_shard_size="20KB")
        assert os.path.exists(os.path.join(folder, "model.safetensors.index.json"))
        back = t.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    same = dict(model.named_parameters())
    assert all(torch.equal(p, same[name]) for name, p in back.named_parameters())
    return back.eval(), tokens(2, 7)


@case("transformers")
def a_saved_model_is_loaded_in_half_precision():
    model = model_of(*LLAMA)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        back = t.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        kinds = {p.dtype for p in back.parameters()}
    assert kinds == {torch.bfloat16}, kinds
    return ((lambda: [p.detach() for p in back.parameters()]),)


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        words = np.random.RandomState(i).randint(3, 63, 8)
        return {"input_ids": torch.tensor(words), "labels": torch.tensor(words)}


def trainer(folder, **options):
    arguments = t.TrainingArguments(
        folder,
        per_device_train_batch_size=4,
        num_train_epochs=1,
        learning_rate=1e-3,
        logging_steps=1,
        save_steps=3,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        adam_epsilon=1e-3,
        weight_decay=0.1,
        **options,
    )

    class InOrder(t.Trainer):
        def _get_train_sampler(self, *unused):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    return InOrder(model_of(*LLAMA), arguments, train_dataset=Sentences(), eval_dataset=Sentences())


def trained(**options):
    def call():
        with tempfile.TemporaryDirectory() as folder:
            run = trainer(folder, **options)
            run.train()
            losses = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
            norms = [entry["grad_norm"] for entry in run.state.log_history if "loss" in entry]
            return losses, norms, [p.detach() for p in run.model.parameters()]

    return lambda: (call,)


several(
    "transformers",
    trainer=trained(lr_scheduler_type="cosine", warmup_steps=2),
    trainer_accumulates=trained(gradient_accumulation_steps=2),
    trainer_clips=trained(max_grad_norm=0.1),
    trainer_adafactor=trained(optim="adafactor"),
    trainer_checkpoints_activations=trained(gradient_checkpointing=True),
    trainer_with_workers=trained(
        dataloader_num_workers=2, dataloader_prefetch_factor=2, dataloader_persistent_workers=True
    ),
)


@case("transformers")
def trainer_resumes():
    def call():
        with tempfile.TemporaryDirectory() as folder:
            whole = trainer(folder)
            whole.train()
            again = trainer(folder)
            again.train(resume_from_checkpoint=os.path.join(folder, "checkpoint-3"))
            for p, q in zip(whole.model.parameters(), again.model.parameters(), strict=True):
                assert torch.equal(p, q), (p - q).abs().max()
            losses = [entry["loss"] for entry in again.state.log_history if "loss" in entry]
            return losses, [p.detach() for p in again.model.parameters()]

    return (call,)


@case("transformers")
def trainer_evaluates():
    def call():
        with tempfile.TemporaryDirectory() as folder:
            run = trainer(folder, prediction_loss_only=False)
            found = run.predict(Sentences())
            return run.evaluate()["eval_loss"], torch.tensor(found.predictions)

    return (call,)
