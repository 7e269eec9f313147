"""Stand-in: NxD's order of events from traced graphs to a packed program.

The work directory is emptied first; the priority graph is compiled before the others; the others
are all started together; the flags get a log file below the graph's directory unless they name
one; the cache key is a digest of graph and flags.
"""

import concurrent.futures
import enum
import hashlib
import json
import os
import pickle
import re
import shutil
import zipfile
from pathlib import Path

from libneuronxla import neuron_xla_compile, neuron_xla_wlo_compile


class HloMetadataLevel(enum.Enum):
    DEBUG, INFO, NONE = "debug", "info", "none"


class Program:
    """What `torch.jit.save` would be given: the NEFFs of every graph."""

    def __init__(self, graphs):
        self.graphs = graphs

    def save(self, path):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("model/version", "3\n")
            archive.writestr("model/data.pkl", pickle.dumps(self.graphs, protocol=4))


class ModelBuilder:
    def __init__(self, compiler_workdir, target):
        self.compiler_workdir, self.target, self.models = Path(compiler_workdir), target, {}

    def add(self, key, graphs, compiler_args, priority_model_idx):
        if "--auto-cast" not in compiler_args:
            compiler_args += " --auto-cast=none "
        if not re.search(r"-O\d+", compiler_args):
            compiler_args += " -O1 "
        if "--verbose" not in compiler_args:
            compiler_args += " --verbose=35"
        self.models[key] = (graphs, compiler_args, priority_model_idx)

    def trace(self, initialize_model_weights=True, dry_run=False, disable_fail_fast=False):
        if self.compiler_workdir.exists():
            shutil.rmtree(self.compiler_workdir)
        done, failed = {}, []
        for key, (graphs, args, priority) in self.models.items():
            if priority is not None:
                done[key, priority] = self._compile(
                    key, priority, graphs[priority], args, " --enable-internal-neff-wrapper"
                )
        with concurrent.futures.ThreadPoolExecutor() as executor:
            jobs = {
                executor.submit(self._compile, key, index, graph, args, ""): (key, index)
                for key, (graphs, args, priority) in self.models.items()
                for index, graph in enumerate(graphs)
                if index != priority
            }
            for future in concurrent.futures.as_completed(jobs):
                try:
                    done[jobs[future]] = future.result()
                except Exception as error:
                    if not disable_fail_fast:
                        raise
                    failed.append((*jobs[future], error))
        if failed:
            told = ", ".join(f"{key} bucket {index}" for key, index, _ in failed)
            raise RuntimeError(f"Compilation failed for {len(failed)} bucket(s): {told}")
        return Program({f"{key}_{index}": neff for (key, index), neff in sorted(done.items())})

    def _compile(self, key, index, graph, args, more):
        place = self.compiler_workdir / key / f"_tp0_bk{index}"
        (place / "model").mkdir(parents=True, exist_ok=True)
        module = json.dumps(graph, sort_keys=True).encode()
        (place / "model" / "graph.hlo").write_bytes(module)
        if "--logfile" not in args:
            args += f" --logfile={(place / 'log-neuron-cc.txt').absolute()}"
        args += more
        hashed = hashlib.sha256(str(module).encode() + args.replace(" ", "").encode())
        kwargs = {
            "input_format": "hlo",
            "platform_target": self.target,
            "cache_key": hashed.hexdigest()[:20],
            "retry_failed_compilation": False,
            "lazy": True,
            "use_cache": True,
            "cache_dir": None,
            "work_dir": place.absolute(),
            "create_subdir": False,
        }
        if more:
            neff, _ = neuron_xla_wlo_compile(module, args, **kwargs)
        else:
            neff = neuron_xla_compile(module_bytes=module, compiler_flags=args, **kwargs)
        (place / "graph.neff").write_bytes(neff)
        (place / "metaneff.pb").write_bytes(b"meta")
        return neff


def read_program(path):
    """The graphs of a saved program: name → NEFF."""
    with zipfile.ZipFile(path) as archive:
        return pickle.loads(archive.read("model/data.pkl"))


def work_directory():
    return os.environ.get("BASE_COMPILE_WORK_DIR", "/tmp/nxd_model/")
