"""A model folder to the Hugging Face Hub, by the Hub's own client, with its token and endpoint (HF_TOKEN, HF_ENDPOINT)."""

from pathlib import Path

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError is httpx's or httpx2's, by version
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    OfflineModeIsEnabled,
)
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from course_lib.errors import CourseError, UsageError
from course_lib.files import read_json

PUBLISHED = (  # what belongs to a model; a folder may hold other things
    "config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer*.json", "tokenizer.model",
    "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model", "preparation.json",
    "README.md", "LICENSE*", "curves.png",
)  # fmt: skip
REFUSED = {401: "the token is not valid", 403: "the token may not write there"}


def push(folder: Path, repo: str, private: bool = False) -> str:
    """Uploads a model folder to the repository `repo` (NAME, or OWNER/NAME), which is made if it is not there; returns its address.

    Raises CourseError for a folder that is no model and for what the Hub refuses; UsageError for a missing token, a bad name, and a public
    repository where a private one was asked for: nothing is uploaded then.
    """
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        raise CourseError(
            f"{folder}: not a model folder, it has no config.json with *.safetensors (`course export` writes one)"
        )
    for path in folder.glob("*config.json"):
        read_json(path)
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UsageError(f"REPO: {repo!r} is not allowed: {' '.join(str(error).split())}") from error
    token = get_token()
    if token is None:
        raise UsageError("HF_TOKEN: no token; allowed: a token with write access in HF_TOKEN, or `hf auth login` once")
    api = HfApi(token=token)
    try:
        return _upload(api, folder, repo, private)
    except HfHubHTTPError as error:
        status = error.response.status_code
        reason = REFUSED.get(status) or error.server_message or str(error)
        raise CourseError(f"{api.endpoint}: refused {repo} ({status}): {' '.join(reason.split())}") from error
    except (HTTPError, OfflineModeIsEnabled) as error:
        raise CourseError(f"{api.endpoint}: not reached: {' '.join(str(error).split())}") from error
    except (RuntimeError, ValueError) as error:  # of one file among many, and of Xet; the cause says more
        reason = f"{error} {error.__cause__ or ''}"
        raise CourseError(f"{api.endpoint}: {repo} is not uploaded: {' '.join(reason.split())}") from error


def _upload(api: HfApi, folder: Path, repo: str, private: bool) -> str:
    made = api.create_repo(repo, private=private, exist_ok=True)
    if private and not api.model_info(made.repo_id).private:
        raise UsageError(
            f"--private: {made} exists and is public; allowed: another name, or make it private on the Hub first"
        )
    api.upload_folder(
        repo_id=made.repo_id, folder_path=folder, allow_patterns=list(PUBLISHED), commit_message="Model of the course"
    )
    return str(made)
