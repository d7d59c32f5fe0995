//! What people paste where a public key belongs.
