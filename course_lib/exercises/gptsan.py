"""Exercises for chapter 5: a router, a switch layer, the spout network, a loss, an experiment, a new class.

The learner's functions are compared with transformers and with the library, on random weights; trained models are
measured here, so that no number has to be believed.
"""

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from course_lib.exercises import Chapter, Code, Exercise, from_notebook
from course_lib.exercises.answers import compare
from course_lib.language.words import tr, tr_noop

if TYPE_CHECKING:
    from course_lib.gptsan.generate import GPTSanGenerator
    from course_lib.gptsan.model import GPTSanForCausalLM

# Tokens, experts and capacity factor; in the last case all tokens choose one expert.
ROUTES = (
    (24, 3, 1.25, tr_noop("the place of a token in the queue of its expert decides: first come, first served")),
    (9, 2, 1.25, tr_noop("the capacity is int(9 · 1.25 / 2) = 5 for each expert: round down")),
    (8, 4, 1.0, tr_noop("an even share is 2 tokens here, but no capacity is below 4")),
)
# Exercise 5.5: the share of texts for which the model is to obey the class in the spout vector, and texts of each class
# in the check.
GOAL, TEXTS = 0.95, 8
# Exercise 5.6: texts at the end of the learner's list that the check reads, and what their own class must save on
# average [nats per token]. An interval of 95 % must be above 0.
HELD_OUT, LEAST = 20, 0.01
PEER = tr_noop("the library")


# Exercise 5.1: route
def _check_route(route: Any) -> str | None:
    """Compare with the router of transformers' Switch Transformers, on the same weights."""
    import torch
    from transformers import SwitchTransformersConfig
    from transformers.models.switch_transformers.modeling_switch_transformers import SwitchTransformersTop1Router

    rng = torch.Generator().manual_seed(0)
    for tokens, experts, factor, advice in ROUTES:
        x, weight = torch.randn(tokens, 8, generator=rng), torch.randn(experts, 8, generator=rng)
        # Most tokens choose the first expert.
        weight[0] += x.mean(0) * 20
        capacity = max(4, int(tokens * factor / experts))
        peer = SwitchTransformersTop1Router(
            SwitchTransformersConfig(hidden_size=8, num_experts=experts, expert_capacity=capacity)
        ).eval()
        peer.classifier.weight.data = weight
        with torch.no_grad():
            served, gate, logits = (output[0] for output in peer(x[None]))
        results = route(x, weight, factor)
        if not isinstance(results, tuple | list) or len(results) != 3:
            return tr("return three tensors: expert, gate and fits.")
        expert, its_gate, fits = results
        chosen = logits.argmax(-1)
        expert_mistakes = ((logits.argmax(0), tr_noop("expert: choose over the experts, the last dimension")),)
        gate_mistakes = (
            (logits.max(-1).values, tr_noop("gate: this is the score of the router; the softmax is missing")),
            (logits.softmax(0).gather(1, chosen[:, None])[:, 0],
             tr_noop("gate: the softmax runs over the tokens; it must run over the experts (-1)")),
            (gate[:, 0] * served.sum(-1),
             tr_noop("gate: a token that does not fit keeps its gate; only `fits` says so")),
        )  # fmt: skip
        problem = compare(expert, chosen, expert_mistakes, PEER) or compare(its_gate, gate[:, 0], gate_mistakes, PEER)
        if problem:
            return problem
        if not torch.equal(torch.as_tensor(fits).bool(), served.sum(-1).bool()):
            return tr("fits is not right for {tokens} tokens and {experts} experts: {advice}.",
                      tokens=tokens, experts=experts, advice=tr(advice))  # fmt: skip
    return None


# Exercise 5.2: switch
def _check_switch(switch: Any) -> str | None:
    """Compare with the library's switch layer, whose experts overflow."""
    import torch

    from course_lib.gptsan.experts import FeedForward, within_capacity
    from course_lib.gptsan.hf_config import GPTSanConfig

    torch.manual_seed(0)
    layer: Any = FeedForward(GPTSanConfig(d_model=16, d_ff=32, num_experts=3), extra=False).train()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x = torch.randn(30, 16)
    with torch.no_grad():
        gate, expert = layer.mlp.router(x).softmax(-1).max(-1)
        fits = within_capacity(expert[None], layer.mlp.config, training=True)[0].any(-1)
        experts, bypass, norm = list(layer.mlp.experts.values()), layer.soft_bypass_mlp, layer.norm
        output = torch.stack([experts[number](row) for number, row in zip(expert.tolist(), x, strict=True)])
        every, skip = gate[:, None] * output, bypass(x).tanh()
        computed = every * fits[:, None]
        mistakes = (
            (x + norm(every + skip),
             tr_noop("every token got an expert: a token that does not fit must get 0 from the experts")),
            (x + norm(output * fits[:, None] + skip),
             tr_noop("the gate is missing: multiply the expert's output by it")),
            (x + norm(computed + bypass(x)), tr_noop("the bypass is missing, or its tanh")),
            (norm(computed + skip), tr_noop("add x after the norm: the layer adds to the stream what it computed")),
            (norm(x + computed + skip), tr_noop("the norm is for what is added, not for x")),
            (x + norm(torch.where(fits[:, None], every, skip)),
             tr_noop("the bypass is for every token, also for those that fit")),
        )  # fmt: skip
        result = switch(x.clone(), expert, gate, fits, experts, bypass, norm)
        return compare(result, layer(x[None])[0][0], mistakes, PEER)


@cache
def _small() -> "GPTSanForCausalLM":
    """Return a model with random weights and a lively spout."""
    import torch

    from course_lib.gptsan.hf_config import GPTSanConfig
    from course_lib.gptsan.model import GPTSanForCausalLM

    torch.manual_seed(0)
    config = GPTSanConfig(
        vocab_size=30, max_position_embeddings=16, d_model=16, d_ff=32, d_ext=32, d_spout=6, num_switch_layers=2,
        num_ext_layers=1, num_heads=2, num_experts=2, embedding_init_std=1.0, spout_init_std=0.6,
        separator_token_id=None, pad_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model: GPTSanForCausalLM = GPTSanForCausalLM(config).train()
    return model


# Exercise 5.3: slots
def _check_slots(slots: Any) -> str | None:
    """Compare with the library's spout network."""
    import torch

    network: Any = _small().model
    matrices = [part.weight.detach() for part in network.spout if hasattr(part, "weight")]
    spout = torch.rand(6, generator=torch.Generator().manual_seed(0))
    layers, heads = network.config.num_layers, network.config.num_heads
    with torch.no_grad():
        expected = torch.stack(list(network.spout_slots(spout[None])))[:, 0, :, :, 0]
        hidden = linear = spout
        for matrix in matrices[:-1]:
            hidden, linear = (matrix @ hidden).tanh(), matrix @ linear
        flat = matrices[-1] @ hidden
    results = slots(spout, matrices, layers, heads)
    if not isinstance(results, tuple | list) or len(results) != 2:
        return tr("return two tensors: the keys and the values.")
    shape = (layers, 2, heads, -1)
    tables = (
        ((matrices[-1] @ linear).view(shape), tr_noop("the tanh is missing between the matrices")),
        (flat.tanh().view(shape), tr_noop("no tanh after the last matrix: keys and values may be larger than 1")),
        (flat.view(shape).flip(1), tr_noop("keys and values are exchanged: in each layer the key comes first")),
        (flat.view(2, layers, heads, -1).transpose(0, 1),
         tr_noop("the order of the last vector is layer, key or value, head, number")),
        (flat.view(layers, heads, 2, -1).transpose(1, 2),
         tr_noop("the order of the last vector is layer, key or value, head, number")),
    )  # fmt: skip
    for number, part in enumerate(results):
        mistakes = [(table[:, number], advice) for table, advice in tables]
        if problem := compare(part, expected[:, number], mistakes, PEER):
            return problem
    return None


# Exercise 5.4: batch_loss
def _check_batch_loss(batch_loss: Any) -> str | None:
    """Compare with the loss of the library's training, on a batch with padding."""
    import torch

    from course_lib.gptsan.layouts import NO_TARGET
    from course_lib.gptsan.samples import cross_entropy

    model, rng = _small(), torch.Generator().manual_seed(1)
    model.config.router_balance_coef = 0.1
    x, y = (torch.randint(30, (4, 9), generator=rng) for _ in range(2))
    y[:, 0] = y[0, 5:] = y[1, 7:] = NO_TARGET
    batch = {"x": x, "y": y, "i": torch.tensor([0, 3, 5, 1])}

    def outputs(spout: torch.Tensor | None) -> Any:
        return model(x, spout=spout, use_cache=False)

    with_class, without_class = outputs(torch.eye(6)[batch["i"]]), outputs(None)
    expected, learned = cross_entropy(with_class.logits, y)[0], y != NO_TARGET
    logits, targets = with_class.logits.flatten(0, 1), y.clamp(min=0).flatten()
    each, balance_loss = torch.nn.functional.cross_entropy(logits, targets, reduction="none"), with_class.aux_loss
    result = batch_loss(model, batch)
    if not torch.is_tensor(result) or result.grad_fn is None:
        return tr("return a tensor from which gradients can flow: no .item(), no .detach().")
    mistakes = (
        (expected, tr_noop("the balance loss is missing: the model's output has it as aux_loss")),
        (cross_entropy(without_class.logits, y)[0] + without_class.aux_loss,
         tr_noop("the model did not get the class: pass spout=…, a row of the identity matrix for each text")),
        (cross_entropy(with_class.logits[:, :-1], y[:, 1:])[0] + balance_loss,
         tr_noop("y is shifted already: y[t] belongs to the logits at t")),
        (each.mean() + balance_loss,
         tr_noop("positions whose y is -1 have no target: give cross_entropy ignore_index=-1")),
        (each[learned.flatten()].sum() + balance_loss, tr_noop("take the mean over the targets, not the sum")),
    )  # fmt: skip
    return compare(result, expected + balance_loss, mistakes, PEER)


def obedience(writer: "GPTSanGenerator", number: int = TEXTS) -> float:
    """Return the share of texts for which the model obeys the class in the spout vector.

    With the small world, the model writes texts of each class, and obeys if the world's checker finds that genre.
    Without it, the model reads held-out texts of each class with every class in the spout vector, and obeys if their
    own class gives the lowest loss.

    Args:
        writer: the model, with the classes of `products.class_names()`.
        number: texts of each class.
    """
    from course_lib.corpus.products import has_world

    writer.model.eval()
    obeys = list(_writes_its_class(writer, number) if has_world() else _reads_best_with_its_class(writer, number))
    return sum(obeys) / len(obeys)


def _writes_its_class(writer: "GPTSanGenerator", number: int) -> Iterator[bool]:
    """Yield for each text that the model writes whether it is of the genre in the spout vector."""
    from course_lib.gptsan import products
    from course_lib.gptsan.config import GenerateConfig
    from course_lib.world.check import check

    for label, name in enumerate(products.class_names()):
        settings = GenerateConfig(spout=label, num_generate=number, max_new_tokens=200, top_k=0, seed=label)
        for text in writer.continue_text("", settings):
            yield check(text.strip()).genre == name


def _reads_best_with_its_class(writer: "GPTSanGenerator", number: int) -> Iterator[bool]:
    """Yield for each held-out text whether its own class gives the lowest loss."""
    import torch

    from course_lib.gptsan import products
    from course_lib.gptsan.examples import Examples
    from course_lib.gptsan.measure import token_losses

    settings, vectors = products.tuned_settings(), torch.eye(writer.config.d_spout)
    _, held_out = Examples(products.CLASSES.path()).split(settings.data.held_out, settings.engine.seed)
    labels = range(len(products.class_names()))
    for label in labels:
        texts = [example for example in held_out if example["i"] == label][:number]
        losses = [token_losses(writer.model, texts, vectors[label_tried]).nanmean(1) for label_tried in labels]
        yield from (torch.stack(losses).argmin(0) == label).tolist()


@cache
def _base() -> dict[str, Any]:
    from course_lib.gptsan import products
    from course_lib.gptsan.hf_config import read_weights

    return read_weights(products.BASE.path() / products.MODEL)


def _changed(model: Any) -> set[str]:
    """Return the names of the base's tensors that a model does not hold as they were."""
    weights = model.state_dict()
    changed = set[str]()
    for name, before in _base().items():
        now = weights[name].cpu()
        if not now.equal(before.to(now.dtype)):
            changed.add(name)
    return changed


# Exercise 5.5: the spout network alone
def _check_alone(answer: Any) -> str | None:
    """Measure the model that the learner trained, and judge the conclusion by it."""
    writer, needed = answer
    changed = _changed(writer.model)
    if other := sorted(name for name in changed if not name.startswith("model.spout.")):
        return tr("{name} has changed: train the spout network only.", name=other[0])
    if not changed:
        return tr("the spout network is that of the base: run the training first.")
    share = obedience(writer)
    if needed != ("no" if share >= GOAL else "yes"):
        return tr(
            "{share:.0%} of the texts that this check let your model write are of the class told; is that enough?",
            share=share,
        )
    return None


def _read(writer: "GPTSanGenerator", texts: list[str]) -> Any:
    """Return the losses [classes + 1, texts] of texts, with each class in the spout vector, the learner's last."""
    import torch

    from course_lib.gptsan import products
    from course_lib.gptsan.examples import Examples
    from course_lib.gptsan.measure import token_losses
    from course_lib.gptsan.samples import encoded

    new_class, vectors = len(products.class_names()), torch.eye(writer.config.d_spout)
    context = Examples(products.CLASSES.path()).report["num_context"]
    writer.model.eval()
    # The first example of each text.
    rows = [encoded([text], new_class, writer.encoding, context)[0] for text in texts]
    return torch.stack([token_losses(writer.model, rows, vector).nanmean(1) for vector in vectors[: new_class + 1]])


# Exercise 5.6: a class of the learner's own
def _check_new_class(answer: Any) -> str | None:
    """Read the last texts of the learner's list with each class in the spout vector."""
    writer, texts = answer
    if len(set(texts)) < 5 * HELD_OUT:
        return tr("give at least {number} different texts.", number=5 * HELD_OUT)
    if other := sorted(name for name in _changed(writer.model) if not name.startswith("model.spout.")):
        return tr("{name} has changed: the base must stay frozen.", name=other[0])
    losses = _read(writer, texts[-HELD_OUT:])
    best = int(losses[:-1].mean(1).argmin())
    gain = losses[best] - losses[-1]
    low = float(gain.mean() - 1.96 * gain.std() / len(gain) ** 0.5)
    if gain.mean() < LEAST or low <= 0:
        return tr(
            "on the last {number} texts, your class saves {gain:.3f} nats per token against class {other} (at least "
            "{low:.3f} with 95 %); {least} are wanted. Train longer, or take texts that differ more from the others.",
            number=HELD_OUT, gain=float(gain.mean()), low=low, least=LEAST, other=best,
        )  # fmt: skip
    return None


CHAPTER = Chapter(
    Exercise(
        "write route(x, router, factor): the expert of each token, its gate, and whether the token fits",
        _check_route,
        (
            "Scores are x @ router.T, [tokens, experts]. Softmax over the experts; max(-1) gives gate and expert.",
            "A one-hot table of the choices, summed up along the tokens (cumsum(0)), numbers each expert's tokens.",
            "fits: the number of a token in the queue of its expert is at most max(4, int(tokens · factor / experts)).",
        ),
        from_notebook("05_gptsan_extra_stage", "route_ours"),
        "The choice itself has no gradient. The gate has one, and through it the loss trains the router.",
    ),
    Exercise(
        "write switch(x, expert, gate, fits, experts, bypass, norm): the output of a switch layer",
        _check_switch,
        (
            "For each expert: which tokens chose it and fit? It computes these rows of x only.",
            "Start with zeros like x; computed[served] = gate[served, None] * network(x[served]).",
            "The end is x + norm(computed + bypass(x).tanh()).",
        ),
        from_notebook("05_gptsan_extra_stage", "switch_ours"),
        "A token that does not fit gets nothing from an expert; the bypass and the residual stream carry it on.",
    ),
    Exercise(
        "write slots(spout, matrices, layers, heads): the key and the value of the spout slot in each layer",
        _check_slots,
        (
            "For every matrix but the last: spout = (matrix @ spout).tanh().",
            "The last product has layers · 2 · heads · d numbers, in this order: view(layers, 2, heads, -1).",
        ),
        from_notebook("05_gptsan_extra_stage", "slots_ours"),
        "The network has no input but the class: once trained, its output is one table of keys and values per class.",
    ),
    Exercise(
        "write batch_loss(model, batch): the loss of a training step, with the class of each text in the spout vector",
        _check_batch_loss,
        (
            "torch.eye(model.config.d_spout)[batch['i']] has a one-hot row for each text.",
            "cross_entropy wants logits.flatten(0, 1), y.flatten() and ignore_index=-1; add output.aux_loss.",
        ),
        from_notebook("05_gptsan_extra_stage", "batch_loss_ours"),
        "Only the spout vector names the class: nothing in x does.",
    ),
    Exercise(
        "train the base with its spout network alone, and say whether the model needs the new layer: 'yes' or 'no'",
        _check_alone,
        (
            "Run the cell of the training first; then let `alone` write texts of each class and count.",
            f"The question is whether at least {GOAL:.0%} of the texts are of the class that was told.",
        ),
        Code("(alone, 'yes' if exercises.obedience(alone) < 0.95 else 'no')"),
        "Under tiny, 300 steps with the spout network alone reach most of the texts, but not 95 % (83 % of 96 in one "
        "run); with the new layer, nearly all. Keys and values can steer a frozen model, but this network has only "
        "10,240 numbers and eight tanh layers. Chapter 6 trains keys and values directly.",
    ),
    Exercise(
        "give the model a class of your own: hand in (writer, texts), where the last texts were not trained on",
        _check_new_class,
        (
            "Take texts that share what no old class names, and early: for example the weather reports of one town.",
            "Mix the old examples in, or the old classes are forgotten; 300 steps are enough.",
        ),
        Code("(writer, texts)"),
        "The class is whatever your texts have in common. What the old classes name already, a new class cannot add.",
    ),
)
check, choose, hint, solution = CHAPTER.check, CHAPTER.choose, CHAPTER.hint, CHAPTER.solution
