"""Settings for `course scale`: the inputs, the chapters' own settings, and what each engine needs."""

from typing import Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from course_lib.corpus.config import DownloadConfig, WebtextConfig, WikipediaConfig
from course_lib.japanese.config import SegmentConfig
from course_lib.settings.config import STRICT, setting
from course_lib.subword.config import BpeConfig

Engine = Literal["local", "slurm", "ray"]


@dataclass(frozen=True, config=STRICT)
class SlurmConfig:
    """Settings for the Slurm jobs, one job array per stage."""

    partition: str = setting("main", "partition of the jobs")
    time: str = setting("24:00:00", "time limit of a task")
    cpus_per_task: int = setting(1, "cores reserved for a task", ge=1)
    memory_gb: int = setting(4, "memory reserved for each core [GB]", ge=1)
    max_array_size: int = setting(1001, "the cluster's MaxArraySize; more tasks are submitted as several arrays", ge=1)
    environment: str | None = setting(None, "activate script of a Python environment that the nodes share")
    sbatch: dict[str, str] = setting({}, "further options of sbatch, such as account")


@dataclass(frozen=True, config=STRICT)
class RayConfig:
    """Settings for the Ray cluster."""

    address: str = setting("auto", "address of the running cluster; auto: the one of this machine or RAY_ADDRESS")
    cpus_per_task: int = setting(1, "cores reserved for a task", ge=1)
    memory_gb: float = setting(2.0, "memory reserved for each core [GB]", gt=0)


@dataclass(frozen=True, config=STRICT)
class ScaleConfig:
    """Settings for `course scale`. The results do not depend on tasks, workers, slurm and ray."""

    output: str = setting("", "folder for everything that is written: a path that all nodes see, or s3://bucket/path")
    wikipedia: tuple[str, ...] = setting(
        (), "dumps, in order: jawiki, jawiki:20261101, https://….bz2, s3://…, or a path that all nodes see"
    )
    webtext: tuple[str, ...] = setting(
        (), "web text in CC-100 format, in order: cc100, https://….xz, s3://…, or a path"
    )
    tasks: int = setting(8, "tasks of a stage, each with its share of the shards", ge=1, le=100_000)
    workers: int = setting(-1, "tasks that run at the same time; -1: all cores (local), no limit (slurm, ray)", ge=-1)
    dump_shard: int = setting(16_000_000, "size of a shard of a dump, compressed [bytes]", ge=10_000, le=10**9)
    text_shard: int = setting(64_000_000, "size of a shard of web text [bytes]", ge=1_000, le=10**9)
    tokenizer: str | None = setting(None, "tokenizer folder to use; unset: a BPE tokenizer is trained on all lines")
    append_eod: bool = setting(True, "put </s> after every document")
    download: DownloadConfig = Field(default_factory=DownloadConfig)
    extraction: WikipediaConfig = Field(default_factory=WikipediaConfig)
    cleaning: WebtextConfig = Field(default_factory=WebtextConfig)
    segment: SegmentConfig = Field(default_factory=SegmentConfig)
    bpe: BpeConfig = Field(default_factory=BpeConfig)
    slurm: SlurmConfig = Field(default_factory=SlurmConfig)
    ray: RayConfig = Field(default_factory=RayConfig)


# Settings that change where the work is done, but not its result.
FREE = ("output", "tasks", "workers", "slurm", "ray", "download")
