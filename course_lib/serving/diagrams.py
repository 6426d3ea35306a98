"""Drawings for chapter 7: the order of query, key and value heads with their split over ranks, and a request's path."""

from course_lib.errors import UsageError
from course_lib.language.words import tr
from course_lib.notebooks.drawing import BLUE, GREEN, GREY, MUTED, ORANGE, PLAIN, PURPLE, SMALL, Canvas, Drawing

# Left margin, width of the drawing [pixels], and the largest number of heads that fits.
LEFT, WIDTH, MOST_HEADS = 132, 880, 6
PARTS = (("q", BLUE), ("k", ORANGE), ("v", GREEN))


def qkv_order(heads: int = 4, ranks: int = 2) -> Drawing:
    """Draw how the fused query/key/value weight of GPT-NeoX is reordered and split for FasterTransformer.

    A cell holds the d columns of one head. Hugging Face orders them by head first; FasterTransformer stores [H, 3, H]:
    by query, key and value first. Each rank gets whole heads, the same ones of all three. GPT-2 already has this order,
    so its weight is only split. Sources: weight_map.py; FasterTransformer's converter in
    https://github.com/NVIDIA/FasterTransformer, examples/pytorch/gptneox/utils/huggingface_gptneox_convert.py.

    Raises:
        UsageError: if there are too many heads to draw, or `ranks` does not divide them.
    """
    if not 1 <= heads <= MOST_HEADS or ranks < 1 or heads % ranks:
        raise UsageError(
            f"heads: {heads} on {ranks} ranks are not allowed: 1 to {MOST_HEADS} heads, divisible by ranks"
        )
    canvas = Canvas(WIDTH, 272 + 44 * ranks)
    cell = (WIDTH - LEFT - 20) / (3 * heads)
    theirs, ours = 70, 166
    canvas.text(LEFT - 12, theirs + 8, "Hugging Face", SMALL, MUTED, "end")
    canvas.text(LEFT - 12, theirs + 23, tr("by head"), SMALL, MUTED, "end")
    canvas.text(LEFT - 12, ours + 8, "FasterTransformer", SMALL, MUTED, "end")
    canvas.text(LEFT - 12, ours + 23, tr("by q, k, v"), SMALL, MUTED, "end")
    for head in range(heads):
        canvas.text(LEFT + (3 * head + 1.5) * cell, theirs - 14, tr("head {head}", head=head), SMALL, MUTED)
        for part, (name, color) in enumerate(PARTS):
            source = canvas.box(LEFT + (3 * head + part) * cell, theirs, cell - 3, 30, f"{name}{head}", color=color)
            target = canvas.box(LEFT + (part * heads + head) * cell, ours, cell - 3, 30, f"{name}{head}", color=color)
            canvas.arrow(source.bottom, target.top, color=color.line, thick=1)
    share = heads // ranks
    for rank in range(ranks):
        y = ours + 74 + 44 * rank
        canvas.text(LEFT - 12, y + 15, tr("file of rank {rank}", rank=rank), SMALL, MUTED, "end")
        for part, (name, color) in enumerate(PARTS):
            for number in range(share):
                head = rank * share + number
                canvas.box(LEFT + (part * share + number) * cell, y, cell - 3, 30, f"{name}{head}", color=color)
    canvas.text(LEFT, ours + 54, tr("split: whole heads, the same ones of q, k and v"), SMALL, MUTED, "start")
    canvas.key(16, canvas.height - 18, {tr("queries"): BLUE, tr("keys"): ORANGE, tr("values"): GREEN})
    owners = "; ".join(
        tr(
            "rank {rank} gets heads {first} to {last}",
            rank=rank,
            first=rank * share,
            last=(rank + 1) * share - 1,
        )
        for rank in range(ranks)
    )
    return canvas.finish(
        tr(
            "Reordering and splitting the query/key/value weight: {heads} heads, {ranks} ranks",
            heads=heads,
            ranks=ranks,
        ),
        tr(
            "Above: Hugging Face stores query, key and value of head 0, then those of head 1, and so on. Middle: "
            "FasterTransformer stores the queries of all heads, then all keys, then all values. Below: each "
            "rank's file holds the same heads of all three; {owners}.",
            owners=owners,
        ),
    )


def request_path() -> Drawing:
    """Draw the path of a request: client, Triton, the Python process with the engine, and back.

    Sources: client.py, triton_model.py, scheduler.py, batch.py and server.py; Triton's Python backend
    (https://github.com/triton-inference-server/python_backend).
    """
    canvas = Canvas(920, 330)
    canvas.frame(16, 44, 216, 210, tr("client process"), BLUE)
    canvas.frame(322, 44, 198, 210, tr("Triton process, C++"), GREY)
    canvas.frame(610, 44, 294, 210, tr("model process, Python"), ORANGE)
    ask = canvas.box(30, 72, 188, 56, "client.ask", tr("text → token ids"), tr("→ tensors"), color=BLUE)
    text = canvas.box(30, 184, 188, 56, tr("text"), tr("output ids → text,"), tr("end token removed"), color=BLUE)
    arrival = canvas.box(336, 72, 170, 56, "Triton", tr("checks names,"), tr("types and shapes"), color=GREY)
    back = canvas.box(336, 184, 170, 56, "Triton", tr("sends the response"), color=GREY)
    queue = canvas.box(624, 72, 124, 56, "execute", tr("waits for places"), color=ORANGE)
    answer = canvas.box(624, 184, 124, 56, tr("answer"), tr("output tensors"), color=ORANGE)
    lines = tr("one token for"), tr("each running text,"), tr("behind the prefix"), tr("of its task")
    engine = canvas.box(768, 72, 122, 168, "Batch.step", *lines, color=ORANGE)
    for source, target in ((ask, arrival), (arrival, queue)):
        canvas.arrow(source.right, target.left)
    canvas.arrow(queue.right, (engine.x, queue.right[1]))
    canvas.arrow((engine.x, answer.right[1]), answer.right)
    for source, target in ((answer, back), (back, text)):
        canvas.arrow(source.left, target.right)
    for x, (upper, lower) in ((277, ("gRPC 8001", "HTTP 8000")), (565, (tr("shared"), tr("memory")))):
        canvas.text(x, 148, upper, SMALL, MUTED)
        canvas.text(x, 164, lower, SMALL, MUTED)
    folder = canvas.box(624, 274, 266, 42, tr("FasterTransformer folder"), tr("weights and prefixes"), color=PLAIN)
    canvas.arrow((engine.bottom[0], folder.y), engine.bottom, color=PURPLE.line, dashed=True)
    canvas.text(610, 295, tr("read once, at the start"), SMALL, PURPLE.line, "end")
    return canvas.finish(
        tr("The path of a request"),
        tr(
            "The client turns text into token ids and sends tensors over gRPC or HTTP. Triton checks them and passes "
            "them to the model process through shared memory. There, execute waits until the batch has places for "
            "the request's texts. A thread generates one token after the other for all texts in the batch, each "
            "behind the prefix of its task. Texts join and leave between two tokens. The answer takes the same way "
            "back, and the client turns its ids into text. The engine reads the weights and prefixes once, at the "
            "start."
        ),
    )
