"""`recallatk info`: what there is to work with."""

# No `from __future__ import annotations`: the command line is made from these annotations.

from recallatk.cli.cluster import node_lines


def info(*, run_on: str | None = None) -> None:
    """Versions, backends, cores and memory on this machine.

    Args:
        run_on: what a cluster is as well: ray, auto, HOST:PORT or ray://HOST:PORT. With such a value --cluster is the
            same flag.
    """
    from recallatk.memory import default_memory
    from recallatk.ranking import BACKENDS, fastest_backend
    from recallatk.ranking.torch_arithmetic import why_not
    from recallatk.run import describe_environment

    described = describe_environment()
    backend, reason = fastest_backend()
    lines = {
        "recallatk": described["recallatk"],
        "python": described["python"],
        **described["packages"],
        "blas": "; ".join(" ".join(str(value) for value in pool.values()) for pool in described["blas"]) or "unknown",
        "backends": ", ".join(BACKENDS),
        "backend in use": f"{backend} ({reason})",
        "backend torch": why_not() or "installed; it counts on a GPU if torch sees one (--backend torch)",
        "cores": described["cores"],
        "memory for ranking": f"{default_memory() / 1e9:.1f} GB",
        "system": described["system"],
        **({} if run_on is None else node_lines(run_on)),
    }
    for name, value in lines.items():
        print(f"{name}: {value}")
