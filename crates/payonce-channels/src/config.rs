//! Why a channel cannot be built from its settings.
//!
//! Here: the one error of all channels' `new`, whose text says what to do. Not here: reading settings from
//! files (the server's `config`).

use std::fmt;

/// A setting with which the channel could never work. Found at start, so that it is not found at the first
/// callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    setting: &'static str,
    message: String,
}

impl ConfigError {
    pub(crate) fn new(setting: &'static str, message: impl Into<String>) -> Self {
        Self { setting, message: message.into() }
    }

    /// Which setting, in the words of the `Config` structs.
    pub fn setting(&self) -> &'static str {
        self.setting
    }

    /// What is wrong with it, and what to do.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.message)
    }
}

impl std::error::Error for ConfigError {}

/// Merchant numbers and app ids are compared byte by byte, so a pasted blank would refuse every message.
pub(crate) fn check_number(setting: &'static str, text: &str) -> Result<(), ConfigError> {
    if text.is_empty() {
        return Err(ConfigError::new(setting, "is empty; copy it from the platform's console"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ConfigError::new(setting, "holds blanks or other characters than ASCII; copy it again"));
    }
    Ok(())
}
