//! Whether Alipay signed this form.
//!
//! Here: which bytes are signed, in the few ways in which Alipay is known to build them, and `Verified`, the
//! only thing that `payload` takes. Not here: what the parameters mean, and any charset: the bytes received
//! are the bytes signed (F016). opendocs.alipay.com/common/02mse7

use base64::{Engine as _, engine::general_purpose::STANDARD};
use payonce::{
    channel::{Bearing, Belief, Reason, Rejection},
    notice::Notice,
};

use super::{
    form::{self, Form},
    keys::TrustedKeys,
};
use crate::text::quote;

/// Never part of what is signed.
const SIGN: &str = "sign";
const SIGN_TYPE: &str = "sign_type";
/// Present in some certificate-mode notifications; whether it is signed is disputed (facts 1.8).
const CERT_SN: &str = "alipay_cert_sn";

/// The kind of notification that is verified in V1 form only: all published ones are (facts 1.4).
pub(super) const TRADE_NOTIFICATION: &str = "trade_status_sync";

/// One way of building the signed text.
struct Rule {
    name: &'static str,
    /// Whether `sign_type` is in it.
    sign_type: bool,
    /// Whether parameters without a value are in it.
    empties: bool,
    /// Whether `alipay_cert_sn` is in it.
    cert_sn: bool,
}

/// In the order in which they are tried. Trying several is safe: each needs a signature of Alipay's, and a
/// parameter that a rule leaves out carries nothing that is booked.
const RULES: [Rule; 6] = [
    Rule { name: "V1", sign_type: false, empties: true, cert_sn: true },
    Rule { name: "V1 skip-empty", sign_type: false, empties: false, cert_sn: true },
    Rule { name: "V2", sign_type: true, empties: true, cert_sn: true },
    Rule { name: "V1 without alipay_cert_sn", sign_type: false, empties: true, cert_sn: false },
    Rule { name: "V1 skip-empty without alipay_cert_sn", sign_type: false, empties: false, cert_sn: false },
    Rule { name: "V2 without alipay_cert_sn", sign_type: true, empties: true, cert_sn: false },
];

/// A form that Alipay signed. Only [`verify`] makes one.
pub(super) struct Verified<'k> {
    form: Form,
    key_id: &'k str,
    rule: &'static str,
}

impl<'k> Verified<'k> {
    /// For fuzzing what comes after the signature; no such thing exists outside tests.
    #[cfg(test)]
    pub(super) fn unchecked(form: Form) -> Self {
        Self { form, key_id: "none", rule: "none" }
    }

    pub(super) fn form(&self) -> &Form {
        &self.form
    }

    pub(super) fn key_id(&self) -> &'k str {
        self.key_id
    }

    pub(super) fn belief(&self, (notices, bearing): (Vec<Notice>, Bearing)) -> Belief {
        Belief { notices, bearing, key_id: self.key_id.to_owned(), rule: self.rule }
    }
}

/// Splits the body and finds the rule and key that its signature fits.
pub(super) fn verify<'k>(body: &[u8], keys: &'k TrustedKeys) -> Result<Verified<'k>, Rejection> {
    let form = form::parse(body).map_err(|error| Rejection::new(Reason::Malformed, error.why()))?;
    let signature = signature(&form, keys)?;
    let mut sorted: Vec<(&[u8], &[u8])> = form.iter().filter(|(name, _)| *name != SIGN.as_bytes()).collect();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    let found = RULES
        .iter()
        .filter(|rule| applies(rule, &form))
        .find_map(|rule| Some((keys.signer(&signed_text(rule, &sorted), &signature)?, rule.name)));
    match found {
        Some((key_id, rule)) => Ok(Verified { form, key_id, rule }),
        None => Err(Rejection::new(
            Reason::Signature,
            "verifies with none of the configured Alipay public keys; if all messages fail, the app's own key may be configured instead of Alipay's",
        )),
    }
}

/// The signature's bytes. `sign_type` has to be the configured one: in V1 form it is not covered by the
/// signature, so a message could otherwise choose a weaker algorithm (facts 8, no. 27).
fn signature(form: &Form, keys: &TrustedKeys) -> Result<Vec<u8>, Rejection> {
    let wanted = keys.algorithm().sign_type();
    let sign = part(form, SIGN)?;
    let sign_type = part(form, SIGN_TYPE)?;
    if sign_type != wanted.as_bytes() {
        let got = quote(&String::from_utf8_lossy(sign_type));
        return Err(Rejection::new(Reason::SignatureParts, format!("sign_type: {got}, while {wanted} is configured")));
    }
    // Strict: a `+` that something on the way turned into a space is a clean failure (F008).
    STANDARD.decode(sign).map_err(|_| Rejection::new(Reason::Signature, "sign: not base64"))
}

fn part<'f>(form: &'f Form, name: &str) -> Result<&'f [u8], Rejection> {
    match form.get(name) {
        None => Err(Rejection::new(Reason::SignatureParts, format!("{name}: missing"))),
        Some([]) => Err(Rejection::new(Reason::SignatureParts, format!("{name}: empty"))),
        Some(value) => Ok(value),
    }
}

/// A rule that would build the same text as an earlier one is left out, and V2 is no rule for payments.
fn applies(rule: &Rule, form: &Form) -> bool {
    let is_trade = form.get("notify_type") == Some(TRADE_NOTIFICATION.as_bytes());
    let skips_something = rule.empties || form.iter().any(|(_, value)| value.is_empty());
    let drops_something = rule.cert_sn || form.get(CERT_SN).is_some();
    !(rule.sign_type && is_trade) && skips_something && drops_something
}

/// `name=value` joined by `&`, sorted by the bytes of the names, values neither escaped nor trimmed.
fn signed_text(rule: &Rule, sorted: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut text = Vec::with_capacity(sorted.iter().map(|(name, value)| name.len() + value.len() + 2).sum());
    for (name, value) in sorted {
        let left_out = (!rule.sign_type && *name == SIGN_TYPE.as_bytes())
            || (!rule.empties && value.is_empty())
            || (!rule.cert_sn && *name == CERT_SN.as_bytes());
        if left_out {
            continue;
        }
        if !text.is_empty() {
            text.push(b'&');
        }
        text.extend_from_slice(name);
        text.push(b'=');
        text.extend_from_slice(value);
    }
    text
}
