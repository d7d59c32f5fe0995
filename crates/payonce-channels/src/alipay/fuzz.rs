//! Fuzz targets: the form and the scanner of answers.
//!
//! Here: the two splitters and what comes after the signature, given any bytes. They run briefly under
//! `cargo test`, longer under `cargo bolero test alipay::fuzz::form`; the corpora are the fixtures' bodies.
//! Not here: whole messages (`tests/it/properties.rs`).

use payonce::ids::{AccountName, Merchant};

use super::{form, node, payload, verify::Verified};

const ITERATIONS: usize = 1000;

#[test]
fn form() {
    let account = AccountName::new("ali").unwrap();
    let merchant = Merchant::of("ALIPAY", "2088000000000002").unwrap();
    let owner = payload::Owner {
        account: &account,
        merchant: &merchant,
        app_ids: &["2021000000000001".to_owned()],
        seller_id: "2088000000000002",
    };
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Ok(form) = form::parse(bytes) else { return };
        // Decoding only ever shortens.
        assert!(form.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() <= bytes.len());
        if let Ok((notices, _)) = payload::read(&Verified::unchecked(form), &owner) {
            assert!(notices.iter().all(|notice| notice.key().is_ok()));
        }
    });
}

#[test]
fn node() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let found = node::members(bytes);
        // Where serde_json reads an object whose names need no escapes, the scanner has to agree.
        if let Ok(object) = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(bytes)
            && let Ok(found) = found
        {
            for (name, value) in found {
                let name = String::from_utf8_lossy(name);
                if !name.contains('\\') {
                    let value: serde_json::Value = serde_json::from_slice(value).unwrap();
                    assert_eq!(Some(&value), object.get(&*name));
                }
            }
        }
    });
}
