"""Uploading a model folder to the Hugging Face Hub with huggingface_hub, which reads HF_TOKEN and HF_ENDPOINT."""

from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, get_token

# HTTPError comes from httpx or httpx2, depending on the version.
from huggingface_hub.errors import HfHubHTTPError, HTTPError, OfflineModeIsEnabled  # type: ignore[attr-defined]

from course_lib.checkpoints.tokenizer_files import MODELS
from course_lib.errors import CourseError, UsageError, one_line

# The files that belong to a model. No other files are uploaded.
PUBLISHED = (
    "config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer*.json", *MODELS,
    "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "preparation.json",
    "README.md", "LICENSE*",
)  # fmt: skip
REFUSED = {401: "the token is not valid", 403: "the token may not write there"}


def push(folder: Path, repo: str, private: bool = False) -> str:
    """Upload a model folder to the Hub, and return its URL. With `private`, the repository is or must be private."""
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        raise CourseError(f"{folder}: has no config.json with *.safetensors (`course export` writes one)")
    token = get_token()
    if token is None:
        raise UsageError("HF_TOKEN: no token; allowed: a token with write access in HF_TOKEN, or `hf auth login` once")
    api = HfApi(token=token)
    try:
        made = api.create_repo(repo, private=private, exist_ok=True)
        if private and not api.model_info(made.repo_id).private:
            raise UsageError(f"--private: {made} exists and is public; allowed: another name, or a private repository")
        options: dict[str, Any] = {"allow_patterns": list(PUBLISHED), "commit_message": "Model of the course"}
        api.upload_folder(repo_id=made.repo_id, folder_path=folder, **options)
    except HfHubHTTPError as error:
        status = error.response.status_code
        reason = REFUSED.get(status) or error.server_message or one_line(error)
        raise CourseError(f"{api.endpoint}: refused {repo} ({status}): {reason}") from error
    # A wrong name is a ValueError. If the upload of a single file fails, the details are in the exception's cause.
    except (HTTPError, OfflineModeIsEnabled, RuntimeError, ValueError) as error:
        reason = " ".join(f"{error} {error.__cause__ or ''}".split())
        raise CourseError(f"{api.endpoint}: {repo} is not uploaded: {reason}") from error
    return str(made)
