//! Texts that nobody may see.
//!
//! Here: the type that never prints itself and is wiped when dropped, and where its text came from. Not
//! here: which keys are secret (the readers).

use std::{fmt, path::PathBuf};

use zeroize::Zeroizing;

/// A secret, and where it was given.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: Zeroizing<String>,
    /// The key or variable that gave it, for messages.
    pub origin: String,
    /// The file it was read from.
    pub file: Option<PathBuf>,
}

impl Secret {
    /// From a text.
    pub fn new(text: impl Into<String>, origin: impl Into<String>, file: Option<PathBuf>) -> Self {
        Self { text: Zeroizing::new(text.into()), origin: origin.into(), file }
    }

    /// The text, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret(not shown, from {})", self.origin)
    }
}
