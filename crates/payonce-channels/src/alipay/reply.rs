//! How Alipay is answered. The only place of this channel with status codes.
//!
//! Here: spelling. The body is the verdict, compared byte by byte (F054): exactly `success`, nothing around
//! it. Statuses other than 200 fail as well, and are the same as WeChat Pay's, so that logs read alike. Not
//! here: whether to acknowledge (`payonce::outcome`). opendocs.alipay.com/open/270/105902

use payonce::{
    channel::{Reason, Reply},
    outcome::{Refusal, Verdict},
};

const CONTENT_TYPE: &str = "text/plain";

pub(super) fn spell(verdict: &Verdict) -> Reply {
    match verdict {
        Verdict::Acknowledged(_) => acknowledged(),
        Verdict::Refused(refusal) => refused(refusal),
    }
}

fn acknowledged() -> Reply {
    Reply { status: 200, content_type: Some(CONTENT_TYPE), body: b"success".to_vec() }
}

/// The word is custom; anything but `success` would do.
fn refused(refusal: &Refusal) -> Reply {
    Reply { status: status(refusal), content_type: Some(CONTENT_TYPE), body: b"fail".to_vec() }
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
    fn an_acknowledgement_is_seven_bytes() {
        let reply = acknowledged();
        assert_eq!((reply.status, reply.content_type), (200, Some("text/plain")));
        assert_eq!(reply.body, [0x73, 0x75, 0x63, 0x63, 0x65, 0x73, 0x73]);
    }

    #[test]
    fn a_refusal_is_fail() {
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
            let reply = spell(&Verdict::Refused(refusal.clone()));
            assert_eq!((reply.status, reply.content_type), (want, Some("text/plain")), "{refusal:?}");
            assert_eq!(reply.body, b"fail");
        }
    }
}
