"""Being written by the second owner of models/ since 02:04 — please leave this file to them (see /work/notes/INTERFACES.md, end)."""
