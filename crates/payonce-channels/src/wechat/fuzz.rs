//! Fuzz targets: the envelope and the plaintext.
//!
//! Here: what comes after the signature, given any bytes. They run briefly under `cargo test`, longer under
//! `cargo bolero test wechat::fuzz::envelope`; the corpora are the fixtures' bodies and plaintexts. Not here:
//! whole messages (`tests/it/properties.rs`).

use payonce::{
    channel::Bearing,
    ids::{AccountName, Merchant},
    notice::Source,
};

use super::{decrypt, payload, verify::Verified};

const ITERATIONS: usize = 1000;

#[test]
fn envelope() {
    let keys = decrypt::CipherKeys::new(&["PayonceTestApiV3Key0123456789ABC".to_owned()]).unwrap();
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let _ = decrypt::open(&Verified::unchecked(bytes), &keys);
    });
}

#[test]
fn plaintext() {
    let account = AccountName::new("wx").unwrap();
    let merchant = Merchant::of("WXPAY", "1900000001").unwrap();
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        for (source, partner) in [(Source::Callback, false), (Source::Callback, true), (Source::Query, false)] {
            let reader = payload::Reader {
                account: &account,
                merchant: &merchant,
                mchid: "1900000001",
                partner,
                app_ids: &[],
                source,
            };
            if let Ok((notices, bearing)) = reader.read(bytes, payload::Words::default()) {
                assert_eq!(notices.is_empty(), bearing != Bearing::Facts);
                assert!(notices.iter().all(|notice| notice.key().is_ok()));
            }
        }
    });
}

/// Vectors A and B of the fact sheet, and the two ways in which they must fail.
#[test]
fn the_sheets_resources_open() {
    let keys = decrypt::CipherKeys::new(&["PayonceTestApiV3Key0123456789ABC".to_owned()]).unwrap();
    let open = |ciphertext: &str, nonce: &str, associated: &str| {
        let body = format!(
            r#"{{"resource":{{"algorithm":"AEAD_AES_256_GCM","ciphertext":"{ciphertext}","nonce":"{nonce}"{associated}}}}}"#
        );
        decrypt::open(&Verified::unchecked(body.as_bytes()), &keys).map(|resource| resource.plaintext)
    };
    let a = include_str!("../../testdata/wechat/sheet-a-ciphertext.txt");
    let b = include_str!("../../testdata/wechat/sheet-b-ciphertext.txt");
    let transaction = r#","associated_data":"transaction""#;
    assert_eq!(
        open(a, "abcdEFGH1234", transaction).unwrap(),
        include_bytes!("../../testdata/wechat/sheet-a-plaintext.json")
    );
    for associated in ["", r#","associated_data":"""#, r#","associated_data":null"#] {
        let plaintext = open(b, "zyxw98765432", associated).unwrap();
        assert_eq!(plaintext, include_bytes!("../../testdata/wechat/sheet-b-plaintext.json"));
    }
    assert!(open(a, "abcdEFGH1234", r#","associated_data":"transactioN""#).is_err());
    assert!(open(a, "abcdEFGH1234", "").is_err());
    assert!(open(a, "abcdEFGH1235", transaction).is_err());
    assert!(open(b, "zyxw98765432", r#","associated_data":"refund""#).is_err());
}
