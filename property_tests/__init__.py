"""The promises, checked by machines that try to break them; and the proof that each check can fail.

`docs/testing.md` says what each machine can and cannot prove.
"""
