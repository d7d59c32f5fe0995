//! The suite that every store must pass: the definition of the seam.
