import os
import tempfile

import torch
import transformers as t
import trl
from datasets import Dataset
from models import array, case, filled, integers, numbers_of_numpy, several
from tokenizers import Tokenizer, models, pre_tokenizers
from trl.trainer.utils import selective_log_softmax

t.logging.set_verbosity_error()
WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "sat",
    "ran",
    "on",
    "in",
    "under",
    "mat",
    "park",
    "tree",
    "quick",
    "lazy",
    "brown",
    "red",
    "happily",
    "alone",
]


def tokenizer():
    vocabulary = {w: i for i, w in enumerate(["<pad>", "<s>", "</s>", "<unk>", *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return t.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
    )


CONFIG = {
    "vocab_size": len(WORDS) + 4,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def model(folder, kind=t.LlamaForCausalLM, **more):
    """A model that says where it was loaded from, since trainers load the reference from there."""
    folder = os.path.join(folder, "model")
    filled(kind(t.LlamaConfig(**CONFIG, **more))).save_pretrained(folder)
    return kind.from_pretrained(folder, dtype=torch.float64)


PROMPTS = ["the cat", "a dog", "the quick brown dog", "a red cat"]
CHOSEN = ["sat on a mat", "ran in the park", "sat alone", "ran happily under the tree"]
REJECTED = ["ran", "sat under a mat", "ran happily", "sat"]
COMMON = {
    "per_device_train_batch_size": 2,
    "max_steps": 4,
    "logging_steps": 1,
    "learning_rate": 1e-3,
    "adam_epsilon": 1e-3,
    "report_to": [],
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
    "save_strategy": "no",
    "gradient_checkpointing": False,
}


def in_order(kind):
    """The trainer without its shuffling of samples."""

    class InOrder(kind):
        def _get_train_sampler(self, dataset=None):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    InOrder.__name__ = kind.__name__
    return InOrder


def trained(kind, settings, columns, start=model, keys=("loss",), **options):
    def call():
        with tempfile.TemporaryDirectory() as folder, numbers_of_numpy():
            run = in_order(kind)(
                model=start(folder),
                args=settings(output_dir=folder, **COMMON, **options),
                train_dataset=Dataset.from_dict(columns),
                processing_class=tokenizer(),
            )
            run.train()
            logs = [entry for entry in run.state.log_history if "loss" in entry]
            return (
                [entry[key] for entry in logs for key in keys],
                [p.detach() for p in run.model.parameters()],
            )

    return lambda: (call,)


PAIRS = {"prompt": PROMPTS, "chosen": CHOSEN, "rejected": REJECTED}
WHOLE = [f"{p} {c}" for p, c in zip(PROMPTS, CHOSEN, strict=True)]
PREFERENCE = ("loss", "rewards/chosen", "rewards/margins")


def rewarder(folder):
    return model(folder, t.LlamaForSequenceClassification, num_labels=1)


several(
    "trl",
    sft=trained(trl.SFTTrainer, trl.SFTConfig, {"text": WHOLE}),
    sft_of_completions=trained(
        trl.SFTTrainer, trl.SFTConfig, {"prompt": PROMPTS, "completion": CHOSEN}
    ),
    sft_packed=trained(
        trl.SFTTrainer,
        trl.SFTConfig,
        {"text": WHOLE * 4},
        packing=True,
        packing_strategy="wrapped",
        max_length=8,
    ),
    sft_dft=trained(trl.SFTTrainer, trl.SFTConfig, {"text": WHOLE}, loss_type="dft"),
    dpo=trained(trl.DPOTrainer, trl.DPOConfig, PAIRS, keys=PREFERENCE),
    dpo_ipo=trained(trl.DPOTrainer, trl.DPOConfig, PAIRS, keys=PREFERENCE, loss_type=["ipo"]),
    dpo_hinge=trained(trl.DPOTrainer, trl.DPOConfig, PAIRS, keys=PREFERENCE, loss_type=["hinge"]),
    rewards=trained(
        trl.RewardTrainer,
        trl.RewardConfig,
        {
            "chosen": WHOLE,
            "rejected": [f"{p} {r}" for p, r in zip(PROMPTS, REJECTED, strict=True)],
        },
        start=rewarder,
    ),
)


def short(completions, **unused):
    """The reward of a completion: words that start with a vowel, less its length."""
    return [sum(w[0] in "aeiou" for w in c.split()) - 0.1 * len(c.split()) for c in completions]


def group_relative(**options):
    def call():
        with tempfile.TemporaryDirectory() as folder, numbers_of_numpy():
            settings = {**COMMON, "per_device_train_batch_size": 4, "max_steps": 2}
            run = trl.GRPOTrainer(
                model=model(folder),
                reward_funcs=short,
                args=trl.GRPOConfig(
                    output_dir=folder,
                    num_generations=4,
                    max_completion_length=6,
                    shuffle_dataset=False,
                    **settings,
                    **options,
                ),
                train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
                processing_class=tokenizer(),
            )
            run.train()
            logs = [entry for entry in run.state.log_history if "loss" in entry]
            return (
                [entry[key] for entry in logs for key in ("loss", "reward", "reward_std")],
                [p.detach() for p in run.model.parameters()],
            )

    return lambda: (call,)


several(
    "trl",
    grpo=group_relative(),
    grpo_against_reference=group_relative(beta=0.1),
    grpo_of_sequences=group_relative(importance_sampling_level="sequence"),
)


@case("trl")
def log_softmax_of_chosen_tokens():
    return lambda x: selective_log_softmax(x, integers(7, 2, 5)), array(2, 5, 7)
