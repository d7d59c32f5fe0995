//! Each wrong figure makes the verdict fail.
