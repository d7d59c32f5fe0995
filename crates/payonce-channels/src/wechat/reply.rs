//! How WeChat Pay is answered. The only place of this channel with status codes.
//!
//! Here: spelling. The status alone is the verdict: 200 with `{"code":"FAIL"}` would count as taken, for
//! good (F053). Not here: whether to acknowledge (`payonce::outcome`).
//! pay.weixin.qq.com/doc/v3/merchant/4012075420

use payonce::{
    channel::{Reason, Reply},
    outcome::{Refusal, Verdict},
};

pub(super) fn spell(verdict: &Verdict) -> Reply {
    match verdict {
        Verdict::Acknowledged(_) => acknowledged(),
        Verdict::Refused(refusal) => refused(refusal),
    }
}

/// 204 without a body is "received" in every edition of the documentation.
const fn acknowledged() -> Reply {
    Reply { status: 204, content_type: None, body: Vec::new() }
}

fn refused(refusal: &Refusal) -> Reply {
    Reply {
        status: status(refusal),
        content_type: Some("application/json"),
        // The messages are our own constants without quotes or backslashes; a test holds them to that.
        body: format!(r#"{{"code":"FAIL","message":"{}"}}"#, refusal.message()).into_bytes(),
    }
}

/// 4xx: the sender cannot mend it by sending the same again. 5xx: something on our side may change.
const fn status(refusal: &Refusal) -> u16 {
    match refusal {
        Refusal::Rejected(reason) => match reason {
            Reason::SignatureParts | Reason::Timestamp | Reason::UnknownKey | Reason::Signature | Reason::Probe => 401,
            Reason::Malformed => 400,
            Reason::ForeignIdentity => 403,
            Reason::Undecryptable | Reason::MissingField | Reason::UnknownState | Reason::Ambiguous => 500,
        },
        Refusal::TooLarge => 413,
        Refusal::NotYet | Refusal::Busy => 503,
        Refusal::Internal => 500,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_exact_json_and_never_a_success() {
        let refusals = Reason::ALL.map(Refusal::Rejected).into_iter().chain([
            Refusal::NotYet,
            Refusal::TooLarge,
            Refusal::Busy,
            Refusal::Internal,
        ]);
        for refusal in refusals {
            let message = refusal.message();
            let reply = spell(&Verdict::Refused(refusal.clone()));
            assert!((400..600).contains(&reply.status), "{refusal:?}");
            assert_eq!(reply.content_type, Some("application/json"));
            let body: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
            assert_eq!(body, serde_json::json!({"code": "FAIL", "message": message}));
        }
    }

    /// F052: exactly 204, nothing else.
    #[test]
    fn an_acknowledgement_is_204_and_empty() {
        assert_eq!(acknowledged(), Reply { status: 204, content_type: None, body: Vec::new() });
    }

    #[test]
    fn statuses() {
        let table = [
            (Refusal::Rejected(Reason::SignatureParts), 401),
            (Refusal::Rejected(Reason::Timestamp), 401),
            (Refusal::Rejected(Reason::UnknownKey), 401),
            (Refusal::Rejected(Reason::Signature), 401),
            (Refusal::Rejected(Reason::Probe), 401),
            (Refusal::Rejected(Reason::Malformed), 400),
            (Refusal::Rejected(Reason::ForeignIdentity), 403),
            (Refusal::Rejected(Reason::Undecryptable), 500),
            (Refusal::Rejected(Reason::MissingField), 500),
            (Refusal::Rejected(Reason::UnknownState), 500),
            (Refusal::Rejected(Reason::Ambiguous), 500),
            (Refusal::TooLarge, 413),
            (Refusal::NotYet, 503),
            (Refusal::Busy, 503),
            (Refusal::Internal, 500),
        ];
        for (refusal, want) in table {
            assert_eq!(status(&refusal), want, "{refusal:?}");
        }
    }
}
