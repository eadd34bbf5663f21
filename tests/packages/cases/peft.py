import os
import tempfile

import peft
import torch
import transformers as t
from models import array, case, filled, integers, several

SMALL = t.LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
PROJECTIONS = ["q_proj", "v_proj"]


def base():
    return filled(t.LlamaForCausalLM(SMALL)).eval()


def tokens(*shape):
    return integers(60, *shape) + 3


def adapted(config):
    """A model with an adapter whose numbers are not those of its own initialisation."""
    model = filled(peft.get_peft_model(base(), config)).eval()
    for name, projection in model.named_buffers():
        if "vera_" in name or "randlora_" in name:  # random ones, which are not trained
            projection.copy_(array(*projection.shape, seed=7))
    return model


class Loss(torch.nn.Module):
    """The loss of a causal model with an adapter."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        found = self.model(input_ids=tokens, labels=tokens)
        return found.loss, found.logits


def loss(make):
    return lambda: (Loss(adapted(make())), tokens(2, 9))


LORA = {"task_type": "CAUSAL_LM", "target_modules": PROJECTIONS}
several(
    "peft",
    lora=loss(lambda: peft.LoraConfig(r=4, lora_alpha=8, **LORA)),
    lora_of_rank_stabilised=loss(lambda: peft.LoraConfig(r=4, use_rslora=True, **LORA)),
    lora_with_magnitudes=loss(lambda: peft.LoraConfig(r=4, use_dora=True, **LORA)),
    lora_with_biases=loss(lambda: peft.LoraConfig(r=4, bias="lora_only", **LORA)),
    lora_of_embeddings=loss(
        lambda: peft.LoraConfig(r=4, target_modules=["embed_tokens", "q_proj"])
    ),
    lora_saves_head=loss(lambda: peft.LoraConfig(r=4, modules_to_save=["lm_head"], **LORA)),
    lora_by_pattern=loss(lambda: peft.LoraConfig(r=4, rank_pattern={"v_proj": 2}, **LORA)),
    adalora=loss(
        lambda: peft.AdaLoraConfig(init_r=4, target_r=2, total_step=10, tinit=1, tfinal=2, **LORA)
    ),
    ia3=loss(
        lambda: peft.IA3Config(
            task_type="CAUSAL_LM",
            target_modules=["k_proj", "down_proj"],
            feedforward_modules=["down_proj"],
        )
    ),
    loha=loss(lambda: peft.LoHaConfig(r=4, target_modules=PROJECTIONS)),
    lokr=loss(lambda: peft.LoKrConfig(r=4, target_modules=PROJECTIONS)),
    vera=loss(lambda: peft.VeraConfig(r=4, target_modules=["q_proj"])),
    layer_norms=loss(lambda: peft.LNTuningConfig(task_type="CAUSAL_LM")),
    prefix=loss(lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)),
    prompt=loss(lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)),
    p_tuning=loss(
        lambda: peft.PromptEncoderConfig(
            task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_hidden_size=16
        )
    ),
    adaption_prompt=loss(
        lambda: peft.AdaptionPromptConfig(task_type="CAUSAL_LM", adapter_len=3, adapter_layers=1)
    ),
    vblora=loss(
        lambda: peft.VBLoRAConfig(
            r=4, num_vectors=12, vector_length=8, topk=2, target_modules=["q_proj"]
        )
    ),
    hra=loss(lambda: peft.HRAConfig(r=4, target_modules=["q_proj"])),
    boft=loss(lambda: peft.BOFTConfig(boft_block_size=8, target_modules=["q_proj"])),
    oft=loss(lambda: peft.OFTConfig(oft_block_size=8, r=0, target_modules=["q_proj"])),
    bone=loss(lambda: peft.MissConfig(r=4, target_modules=["q_proj"])),
    random_projections=loss(lambda: peft.RandLoraConfig(r=4, target_modules=["q_proj"])),
)


@case("peft")
def merged():
    model = adapted(peft.LoraConfig(r=4, lora_alpha=8, **LORA)).merge_and_unload()
    assert isinstance(model, t.LlamaForCausalLM)
    return Loss(model), tokens(2, 9)


@case("peft")
def disabled():
    model = adapted(peft.LoraConfig(r=4, **LORA))

    def call(tokens):
        with model.disable_adapter():
            without = model(tokens).logits
        return without.detach(), (model(tokens).logits - without).detach()

    return call, tokens(2, 9)


@case("peft")
def two_adapters():
    model = peft.get_peft_model(base(), peft.LoraConfig(r=4, **LORA))
    model.add_adapter("other", peft.LoraConfig(r=2, **LORA))
    filled(model)
    model.add_weighted_adapter(["default", "other"], [0.7, 0.3], "both", combination_type="cat")
    model.eval()

    def call(tokens):
        found = []
        for name in ("default", "other", "both"):
            model.set_adapter(name)
            found.append(model(tokens).logits.detach())
        return found

    return call, tokens(2, 9)


@case("peft")
def a_saved_adapter_is_loaded():
    model = adapted(peft.LoraConfig(r=4, **LORA))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        assert os.path.exists(os.path.join(folder, "adapter_model.safetensors"))
        back = peft.PeftModel.from_pretrained(base(), folder, is_trainable=True)
    saved = peft.get_peft_model_state_dict(model)
    for name, value in peft.get_peft_model_state_dict(back).items():
        assert torch.equal(value.to(saved[name].dtype), saved[name]), name
    return Loss(back.to(torch.float64).eval()), tokens(2, 9)


@case("peft")
def generation():
    model = adapted(peft.LoraConfig(r=4, lora_alpha=8, **LORA))

    def call(tokens):
        return model.generate(input_ids=tokens, max_new_tokens=8, do_sample=False)

    return call, tokens(2, 5)


@case("peft")
def only_the_adapter_is_trained():
    model = adapted(peft.LoraConfig(r=4, **LORA))

    def call(tokens):
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
        for _ in range(3):
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach(), list(model.get_nb_trainable_parameters())

    return call, tokens(2, 9)
