import tempfile

import torch
import transformers as t
from datasets import Dataset
from models import array, case, filled, integers, several
from sentence_transformers import (
    CrossEncoder,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
    models,
    util,
)

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
SENTENCES = [
    "the cat sat on a mat",
    "a lazy dog ran in the park",
    "the quick brown dog sat alone",
    "a red cat ran happily under the tree",
]
OTHERS = ["a cat on the mat", "the dog ran", "a dog sat", "the cat ran"]


def saved(folder, labels=None):
    """A folder with a small BERT and its tokenizer, as `save_pretrained` writes them."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    with open(f"{folder}/vocab.txt", "w") as file:
        file.write("\n".join(vocabulary))
    t.BertTokenizerFast(
        vocab={word: i for i, word in enumerate(vocabulary)}, model_max_length=32
    ).save_pretrained(folder)
    config = t.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **({} if labels is None else {"num_labels": labels}),
    )
    kind = t.BertModel if labels is None else t.BertForSequenceClassification
    filled(kind(config)).save_pretrained(folder)
    return folder


def encoder(*more, pooling="mean"):
    with tempfile.TemporaryDirectory() as folder:
        body = models.Transformer(saved(folder), max_seq_length=16)
    pool = models.Pooling(32, pooling_mode=pooling)
    made = SentenceTransformer(modules=[body, pool, *more], device="cpu")
    return made.to(torch.float64).eval()


def encoded(pooling="mean", more=lambda: (), **options):
    def call():
        made = filled(encoder(*more(), pooling=pooling))
        return made.encode(SENTENCES, convert_to_tensor=True, show_progress_bar=False, **options)

    return lambda: (call,)


several(
    "sentence_transformers",
    **{f"pooled_by_{name}": encoded(name) for name in ("mean", "max", "cls", "lasttoken", "weightedmean", "mean_sqrt_len_tokens")},
    dense=encoded(more=lambda: (models.Dense(32, 8), models.Normalize())),
    normalized=encoded(normalize_embeddings=True),
    in_small_batches=encoded(batch_size=2),
    quantized=encoded(precision="int8"),
    layer_norm=encoded(more=lambda: (models.LayerNorm(32),)),
)  # fmt: skip


class Loss(torch.nn.Module):
    """A loss of sentences, whose parameters are those of the encoder."""

    def __init__(self, make, columns, labels=None):
        super().__init__()
        self.encoder = encoder()
        self.loss = make(self.encoder).to(torch.float64)
        self.labels = labels
        self.features = [self.encoder.preprocess(list(c)) for c in columns]

    def forward(self):
        return self.loss([dict(f) for f in self.features], self.labels)


def loss(make, columns=(SENTENCES, OTHERS), labels=None):
    return lambda: (Loss(make, columns, labels),)


SCORES = torch.tensor([0.9, 0.1, 0.4, 0.7], dtype=torch.float64)
CLASSES = torch.tensor([0, 1, 1, 0])
several(
    "sentence_transformers",
    cosine_similarity=loss(losses.CosineSimilarityLoss, labels=SCORES),
    cosent=loss(losses.CoSENTLoss, labels=SCORES),
    angle=loss(losses.AnglELoss, labels=SCORES),
    contrastive=loss(losses.ContrastiveLoss, labels=CLASSES),
    online_contrastive=loss(losses.OnlineContrastiveLoss, labels=CLASSES),
    ranking=loss(losses.MultipleNegativesRankingLoss),
    symmetric_ranking=loss(losses.MultipleNegativesSymmetricRankingLoss),
    triplet=loss(losses.TripletLoss, (SENTENCES, OTHERS, OTHERS[::-1])),
    hard_triplet=loss(losses.BatchHardTripletLoss, (SENTENCES,), CLASSES),
    soft_margin_triplet=loss(losses.BatchHardSoftMarginTripletLoss, (SENTENCES,), CLASSES),
    matryoshka=loss(
        lambda m: losses.MatryoshkaLoss(m, losses.MultipleNegativesRankingLoss(m), [32, 16, 8])
    ),
    softmax=loss(lambda m: filled(losses.SoftmaxLoss(m, 32, 2)), labels=CLASSES),
    mega_batch=loss(losses.MegaBatchMarginLoss),
)


@case("sentence_transformers")
def a_saved_encoder_is_loaded():
    def call():
        made = encoder(models.Normalize())
        with tempfile.TemporaryDirectory() as folder:
            made.save(folder)
            back = SentenceTransformer(folder, device="cpu").to(torch.float64)
        found = made.encode(SENTENCES, convert_to_tensor=True)
        assert torch.allclose(found, back.encode(SENTENCES, convert_to_tensor=True))
        return made.similarity(found, found)

    return (call,)


def in_order(dataset, batch_size, drop_last, **unused):
    order = torch.utils.data.SequentialSampler(dataset)
    return torch.utils.data.BatchSampler(order, batch_size, drop_last)


@case("sentence_transformers")
def trainer():
    def call():
        with tempfile.TemporaryDirectory() as folder:
            model = encoder()
            arguments = SentenceTransformerTrainingArguments(
                folder,
                per_device_train_batch_size=2,
                max_steps=4,
                logging_steps=1,
                learning_rate=1e-3,
                adam_epsilon=1e-3,
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
                dataloader_pin_memory=False,
                save_strategy="no",
                batch_sampler=in_order,
            )
            run = SentenceTransformerTrainer(
                model,
                arguments,
                train_dataset=Dataset.from_dict({"a": SENTENCES, "b": OTHERS}),
                loss=losses.MultipleNegativesRankingLoss(model),
            )
            run.train()
            found = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
            return found, [p.detach() for p in model.parameters()]

    return (call,)


@case("sentence_transformers")
def cross_encoder():
    def call():
        with tempfile.TemporaryDirectory() as folder:
            made = CrossEncoder(saved(folder, 1), device="cpu").to(torch.float64)
        pairs = list(zip(SENTENCES, OTHERS, strict=True))
        ranked = made.rank(SENTENCES[0], OTHERS)
        scores = made.predict(pairs, convert_to_tensor=True, show_progress_bar=False)
        return scores, [r["corpus_id"] for r in ranked]

    return (call,)


@case("sentence_transformers")
def searches():
    def call(x, y):
        hits = util.semantic_search(x, y, top_k=3)
        clusters = util.community_detection(torch.cat([x, x + 0.01]), 0.9, 2)
        return (
            [[h["corpus_id"], h["score"]] for row in hits for h in row],
            [i for c in clusters for i in c],
            util.cos_sim(x, y),
            util.dot_score(x, y),
            util.euclidean_sim(x, y),
            util.manhattan_sim(x, y),
            util.pairwise_cos_sim(x, y[:4]),
            util.pairwise_angle_sim(x, y[:4]),
        )

    return call, array(4, 8), array(6, 8, seed=1)


@case("sentence_transformers")
def word_weights():
    def call():
        vector = torch.tensor(integers(9, 5, 8), dtype=torch.float64)
        return util.normalize_embeddings(vector), util.truncate_embeddings(vector, 3)

    return (call,)
