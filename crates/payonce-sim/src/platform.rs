//! What the two platforms have in common from outside: they send notifications, and they are content or not.
//!
//! Here: the deadline, the schedule and the rule by which an answer is taken. Not here: what each says and how it signs
//! (`platform/`), carrying and repeating (`courier`).

use crate::message::{Request, Response};
use rand::rngs::StdRng;
use std::sync::Arc;
use std::time::Duration;

pub mod alipay;
pub mod wechat;

/// Which platform a notification comes from, and with it the rules by which an answer is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Platform {
    /// WeChat Pay V3: the status alone decides, 200 and 204 are good.
    Wechat,
    /// Alipay: status 200 and a body of exactly the seven bytes `success`.
    Alipay,
}

impl Platform {
    /// Whether the platform takes this answer for an acknowledgement and stops sending.
    #[must_use]
    pub fn takes(self, answer: &Response) -> bool {
        match self {
            Self::Wechat => matches!(answer.status, 200 | 204),
            Self::Alipay => answer.status == 200 && answer.body == b"success",
        }
    }

    /// How long the platform waits for an answer. Five seconds is WeChat's rule; Alipay publishes none.
    #[must_use]
    pub fn deadline(self) -> Duration {
        Duration::from_secs(5)
    }

    /// The official gaps between deliveries; the first delivery comes before the first gap.
    #[must_use]
    pub fn gaps(self) -> &'static [Duration] {
        match self {
            Self::Wechat => &crate::courier::WECHAT_GAPS,
            Self::Alipay => &crate::courier::ALIPAY_GAPS_4M,
        }
    }
}

/// Something a platform sends, as often as it takes: each delivery is made, and signed, anew.
pub trait Notification: Send + Sync {
    /// Who sends it.
    fn platform(&self) -> Platform;

    /// The platform's own id of it (`id` in WeChat's envelope, Alipay's `notify_id`), the same in every delivery.
    fn id(&self) -> String;

    /// One delivery at `now` (Unix seconds). `rng` is the only source of chance, so that a seed repeats the run.
    fn request(&self, now: i64, rng: &mut StdRng) -> Request;
}

/// A notification made by a function: for faults, and for events that change between deliveries.
pub fn custom(
    platform: Platform,
    id: impl Into<String>,
    make: impl Fn(i64, &mut StdRng) -> Request + Send + Sync + 'static,
) -> Arc<dyn Notification> {
    Arc::new(Custom { platform, id: id.into(), make })
}

struct Custom<F> {
    platform: Platform,
    id: String,
    make: F,
}

impl<F: Fn(i64, &mut StdRng) -> Request + Send + Sync> Notification for Custom<F> {
    fn platform(&self) -> Platform {
        self.platform
    }

    fn id(&self) -> String {
        self.id.clone()
    }

    fn request(&self, now: i64, rng: &mut StdRng) -> Request {
        (self.make)(now, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged_by_each_platforms_rule() {
        let answer = |status, body: &str| Response { status, headers: vec![], body: body.into() };
        for (status, body, wechat, alipay) in [
            (200, "success", true, true),
            (200, "", true, false),
            (204, "", true, false),
            // The status takes precedence over what the body says.
            (200, r#"{"code":"FAIL"}"#, true, false),
            (200, "success\n", true, false),
            (200, "SUCCESS", true, false),
            (202, "success", false, false),
            (302, "success", false, false),
            (500, "success", false, false),
        ] {
            assert_eq!(Platform::Wechat.takes(&answer(status, body)), wechat, "{status} {body}");
            assert_eq!(Platform::Alipay.takes(&answer(status, body)), alipay, "{status} {body}");
        }
    }
}
