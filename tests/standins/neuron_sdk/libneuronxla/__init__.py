"""Stand-in: a persistent cache of compiled graphs around the neuronx-cc command.

Layout and states as the SDK's documentation has them: neuronxcc-<version>/MODULE_<key>+<flags>/
with model.hlo_module.pb, compile_flags.json, then model.neff and model.done, or model.log alone
after a failure, which later calls are answered with.
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path


def neuron_xla_compile(
    module_bytes,
    compiler_flags,
    input_format="hlo",
    platform_target="trn1",
    cache_key=None,
    retry_failed_compilation=False,
    lazy=True,
    use_cache=True,
    cache_dir=None,
    work_dir=None,
    create_subdir=True,
):
    return _compile(
        module_bytes, compiler_flags, platform_target, cache_key, retry_failed_compilation, work_dir
    )


def neuron_xla_wlo_compile(module_bytes, compiler_flags, **kwargs):
    neff = _compile(
        module_bytes,
        compiler_flags,
        kwargs["platform_target"],
        kwargs["cache_key"],
        kwargs["retry_failed_compilation"],
        kwargs["work_dir"],
    )
    return neff, None


def _compile(module, flags, target, cache_key, retry_failed, work_dir):
    version = "2.24.8799.0+6f62ff7c"
    entry = Path(
        os.environ["NEURON_COMPILE_CACHE_URL"],
        f"neuronxcc-{version}",
        f"MODULE_{cache_key}+{hashlib.md5(flags.encode()).hexdigest()[:8]}",
    )
    if (entry / "model.done").exists():
        print(f"INFO Using a cached neff at {entry / 'model.neff'}", flush=True)
        return (entry / "model.neff").read_bytes()
    if (entry / "model.log").exists() and not retry_failed:
        raise RuntimeError(
            f"Got a cached failed neff at {entry}. Will skip compilation, please set "
            "--retry_failed_compilation for recompilation."
        )
    entry.mkdir(parents=True, exist_ok=True)
    (entry / "model.log").unlink(missing_ok=True)
    (entry / "model.hlo_module.pb").write_bytes(module)
    (entry / "compile_flags.json").write_text(json.dumps(shlex.split(flags)))
    output = Path(work_dir, "out.neff")
    command = [
        str(Path(sys.executable).with_name("neuronx-cc")),
        "compile",
        "--framework=XLA",
        str(entry / "model.hlo_module.pb"),
        f"--output={output}",
        f"--target={target}",
        *shlex.split(flags),
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    print(done.stdout, done.stderr, sep="", flush=True)
    if done.returncode:
        (entry / "model.log").write_text(done.stdout + done.stderr)
        raise RuntimeError(
            f"Failed compilation with {command}: {done.stdout}{done.stderr}\n"
            f"Subcommand returned with exitcode={done.returncode}"
        )
    print("Compiler status PASS", flush=True)
    if not output.exists():
        raise FileNotFoundError(f"[Errno 2] No such file or directory: '{output}'")
    neff = output.read_bytes()
    (entry / "model.neff").write_bytes(neff)
    (entry / "model.done").touch()
    return neff
