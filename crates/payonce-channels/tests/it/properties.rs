//! What must hold for any bytes.

use payonce::channel::{Answer, Callback, Channel, Headers};
use payonce_channels::{alipay::Alipay, keys::PublicKey, wechat::Wechat};
use proptest::prelude::*;

use crate::support::{alipay, answered, form, gateway_answer, now, paid, payment_params, pem, signer, wechat};

const PAID: &str = r#"{"mchid":"1900000001","out_trade_no":"O1","transaction_id":"T1","trade_state":"SUCCESS","amount":{"total":100}}"#;

struct Fixed {
    wechat: Wechat,
    alipay: Alipay,
    callback: Callback,
    form: Callback,
    answer: Answer,
}

/// Made once: signing takes longer than everything else here.
fn fixed() -> &'static Fixed {
    static FIXED: std::sync::OnceLock<Fixed> = std::sync::OnceLock::new();
    FIXED.get_or_init(|| Fixed {
        wechat: wechat(),
        alipay: alipay(),
        callback: paid(PAID),
        form: form(&payment_params()),
        answer: gateway_answer(r#"{"code":"10000","out_trade_no":"PO_1","trade_no":"T1","total_amount":"12.30","trade_status":"TRADE_SUCCESS"}"#),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_flipped_byte_of_a_wechat_body_is_refused(at in any::<prop::sample::Index>(), mask in 1u8..) {
        let Fixed { wechat, callback, .. } = fixed();
        let mut callback = callback.clone();
        let at = at.index(callback.body.len());
        callback.body[at] ^= mask;
        prop_assert!(wechat.believe(&callback, now()).is_err());
    }

    #[test]
    fn any_flipped_byte_of_a_header_that_is_signed_is_refused(which in 0usize..4, at in any::<prop::sample::Index>(), mask in 1u8..) {
        let Fixed { wechat, callback, .. } = fixed();
        let mut lines: Vec<(String, Vec<u8>)> =
            callback.headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
        let value = &mut lines[which].1;
        let at = at.index(value.len());
        value[at] ^= mask;
        let callback = Callback { headers: lines.into_iter().collect(), body: callback.body.clone() };
        prop_assert!(wechat.believe(&callback, now()).is_err());
    }

    /// F014: the letter case of header names and the order of their lines do not matter.
    #[test]
    fn header_names_have_no_case(upper in proptest::collection::vec(any::<bool>(), 64), rotate in 0usize..5) {
        let Fixed { wechat, callback, .. } = fixed();
        let mut lines: Vec<(String, Vec<u8>)> = callback.headers.iter().map(|(name, value)| {
            let name = name.chars().zip(upper.iter().cycle()).map(|(char, &upper)| {
                if upper { char.to_ascii_uppercase() } else { char.to_ascii_lowercase() }
            }).collect();
            (name, value.to_vec())
        }).collect();
        let middle = rotate % lines.len();
        lines.rotate_left(middle);
        let callback = Callback { headers: lines.into_iter().collect(), body: callback.body.clone() };
        prop_assert!(wechat.believe(&callback, now()).is_ok());
    }

    /// A change that decodes to the same parameters (`%2f` for `%2F`, `+` for `%20`) is no change.
    #[test]
    fn a_changed_form_is_refused_or_says_the_same(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let Fixed { alipay, form, .. } = fixed();
        let mut changed = form.clone();
        let at = at.index(changed.body.len());
        changed.body[at] = byte;
        if let Ok(belief) = alipay.believe(&changed, now()) {
            prop_assert_eq!(belief.notices, alipay.believe(form, now()).unwrap().notices);
        }
    }

    #[test]
    fn a_changed_answer_is_refused_or_says_the_same(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let Fixed { alipay, answer, .. } = fixed();
        let mut changed = answer.clone();
        let at = at.index(changed.body.len());
        changed.body[at] = byte;
        if let Ok(belief) = alipay.believe_answer(&changed, now()) {
            let want = alipay.believe_answer(answer, now()).unwrap().notices;
            prop_assert!(belief.notices.is_empty() || belief.notices == want);
        }
    }

    #[test]
    fn any_callback_is_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let Fixed { wechat, alipay, callback, .. } = fixed();
        let unsigned = Callback { headers: callback.headers.clone(), body: body.clone() };
        prop_assert!(wechat.believe(&unsigned, now()).is_err());
        let form = Callback { headers: Headers::default(), body: body.clone() };
        prop_assert!(alipay.believe(&form, now()).is_err());
        for status in [200, 204, 404] {
            let answer = Answer { status, headers: Headers::default(), body: body.clone() };
            prop_assert!(alipay.believe_answer(&answer, now()).map_or(true, |belief| belief.notices.is_empty()));
            prop_assert!(wechat.believe_answer(&answer, now()).map_or(true, |belief| belief.notices.is_empty()));
        }
    }

    /// Signed, but with anything inside.
    #[test]
    fn any_text_of_a_key_is_read_or_refused(text in ".{0,300}", cut in any::<prop::sample::Index>(), label in "[A-Z ]{0,12}") {
        let _ = PublicKey::read(&text);
        let spki = signer(0).spki();
        let _ = PublicKey::read(&pem(&label, &spki[..cut.index(spki.len())]));
    }

    #[test]
    fn a_damaged_key_is_refused_or_another_key(at in any::<prop::sample::Index>(), mask in 1u8..) {
        let mut spki = signer(0).spki();
        let at = at.index(spki.len());
        spki[at] ^= mask;
        if let Ok(key) = PublicKey::read(&pem("PUBLIC KEY", &spki)) {
            // Bytes 17 and 18 are the NULL parameters of the algorithm: no part of the key, and not looked at.
            prop_assert!(key.fingerprint() != signer(0).public().fingerprint() || (17..19).contains(&at));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn any_signed_plaintext_is_read_or_refused(text in "[\\[\\]{}\":,a-z0-9\\\\ ]{0,80}") {
        let _ = wechat().believe(&paid(&text), now());
        let _ = wechat().believe_answer(&answered(text.clone()), now());
        let _ = alipay().believe_answer(&gateway_answer(&text), now());
    }
}
