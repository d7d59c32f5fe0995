//! Where effects leave over the network.
//!
//! Here: sinks that need a network client. Not here: retrying (`payonce::worker`), or sinks that need no
//! network (`payonce::sink`).

mod guard;
mod webhook;

pub(crate) use guard::is_private;
pub use webhook::{WebhookConfig, WebhookConfigError, WebhookSink};
