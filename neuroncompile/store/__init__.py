"""The store: an OCI image layout that is also an action cache.

    v1/blobs/sha256/<hex>        specs, manifests, layers, provenance; mode 0444
    v1/actions/<kind>/<key>      pointer: an OCI descriptor of the manifest; mtime = last use
    v1/views/<manifest>/         the files under their titles, for the runtime
    v1/refs/<name>               names for people; index.json repeats them for OCI tools
    v1/failures/<kind>/<key>     rejections by the compiler, for a day
    v1/ingest/<hex>              dev, ino, size and mtime of a blob when it was hashed
    v1/locks/ leases/ tmp/       builders and collector, views in use, unfinished files
    v1/partial/                  blobs on their way in from a tier

Four invariants hold at every instant, whatever process dies and however many write:

    I1  a name appears only when its content is complete and durable;
    I2  a pointer or ref names only a manifest whose blobs are all present;
    I3  bytes under `blobs/` never change;
    I4  deletion goes pointer, view, blob.

Staging, fsync, and `link` or `rename` give them. Locks only save work: a lock that does not
hold costs a second build of the same thing, never a wrong one.

Ingest (no lock). Write to `tmp/`, hashing on the way; fsync; mode 0444; link into `blobs/`. A
file in a `scratch` directory is linked instead of copied. A blob that is there already is
touched, which restarts its grace before the collector; if it turns out corrupt, it is set
aside and replaced. The directory is synced before anything names the blobs.

Publish. Ingest all files and the spec; take the collector's lock shared; stat every blob again
and ingest again what was collected meanwhile; write the manifest; link the pointer. If the name
is taken, the first writer has won: its artifact is checked and returned, and our blobs are
garbage. A winner that is not whole is set aside, and the link is tried again.

Lookup (no lock, nothing written that is needed). Read the pointer; the manifest's SHA-256 must
be the pointer's digest; `config.digest` must be the key asked for; the spec's SHA-256 must be
the key; each layer must have its size and be known to have its bytes, or is hashed now. What
fails is a miss with a warning, so a build repairs it. What a key promises is thereby proven
from bytes: a stale, forged or misplaced pointer cannot serve another key's files. Not proven:
that the files of a manifest came from its spec. Whoever can write the store can publish
anything under any spec; signatures of the manifest's digest are for that.

View. A directory under the manifest's digest, built in `tmp/` and renamed. Read-only by
agreement: copy what you want to change. If the store cannot be written, it is a directory of
symbolic links elsewhere, for this process only.

Lease. A file in `leases/`, locked while its process lives, names a manifest in use; made under
the collector's shared lock after the blobs were seen, so none goes in between.

Collect. Under the collector's lock, exclusive: names that may go, then views, then blobs that
nothing names and nobody touched within the grace period; see `store.gc`.

Layers. Stores below, asked in turn and never written: baked into an image, or on a read-only
mount. What is published or viewed goes into the upper one.

Crash. Every step leaves a file in `tmp/` or a blob that nothing names; both are garbage.

A copied or moved store works: nothing holds an absolute path. Copies change inodes, so blobs
are hashed once more. Clocks are not trusted: a modification time in the future or far past is
put right at the next use, and a failure record from the future does not count.

Power loss is tested on recorded calls only: whatever was not synced is lost or mangled, by the
rules of ext4 and by those of POSIX, which promise less. No plug was ever pulled.
"""

from neuroncompile.store.actions import Artifact
from neuroncompile.store.failures import Failure
from neuroncompile.store.local import Store
from neuroncompile.store.locks import Claim, Holder
from neuroncompile.store.oci import Descriptor, Layer

__all__ = [
    "Artifact",
    "Claim",
    "Descriptor",
    "Failure",
    "Holder",
    "Layer",
    "Policy",
    "Store",
    "Sweep",
]
