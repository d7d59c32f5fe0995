//! No text panics the reader, and whatever is done to a configuration, no secret comes out of it.

use std::{ffi::OsString, path::Path};

use payonce_server::config::{self, Faults};
use proptest::prelude::*;

use crate::support::{ADMIN_TOKEN, API_V3_KEY, Folder, WEBHOOK_SECRET, assert_no_secret, testdata};

const PREVIOUS: &str = "Wm4Vt7Gq2Zx9Lb5Nc8Jd3Hf6Ks1Py0Ra";
const PASSWORD: &str = "TrOuBaDoUr-and-3-more";
const SECRETS: [&str; 5] = [API_V3_KEY, PREVIOUS, WEBHOOK_SECRET, ADMIN_TOKEN, PASSWORD];

/// Every secret stands in the file itself, in every form that TOML has for it.
fn full_of_secrets() -> String {
    let key = testdata("wechat-public.pem");
    let alipay = testdata("alipay-public");
    format!(
        r#"[server]
admin_token = "{ADMIN_TOKEN}" # before: {PASSWORD}
public = "127.0.0.1:0"

[database]
url = "postgres://payonce:{PASSWORD}@db.internal:5432/books?sslmode=verify-full"

[accounts.wx]
channel = "wechat"
mchid = "1900000001"
api_v3_key = '{API_V3_KEY}'
previous_api_v3_key = """
{PREVIOUS}"""
public_key_id = "PUB_KEY_ID_01"
public_key = """
{key}"""

[accounts]
ali = {{ channel = "alipay", app_id = "2021", app_private_key = "{PASSWORD}", seller_id = "2088", alipay_public_key = "{alipay}" }}

[[effects]]
on = "order.paid"
name = "ship"
sink = "shop"

[sinks.shop]
type = "http"
url = "http://127.0.0.1:3000/"
secrets = [
  "{WEBHOOK_SECRET}",
  "{WEBHOOK_SECRET}",
]
"#
    )
}

/// What a person is shown.
fn shown(text: &str, variables: &[(OsString, OsString)]) -> String {
    let loaded = config::read(Path::new("/nowhere/payonce.toml"), text.to_owned().into(), variables);
    format!("{:?}\n{}", loaded.faults, Faults(loaded.faults.clone()))
}

/// That, and what `Debug` would print of the settings. (A secret under a key that is not secret is a value
/// like any other to `Debug`, but never in a fault.)
fn everything(text: &str, variables: &[(OsString, OsString)]) -> String {
    let loaded = config::read(Path::new("/nowhere/payonce.toml"), text.to_owned().into(), variables);
    format!("{:?}\n{:?}\n{}", loaded.config, loaded.faults, Faults(loaded.faults.clone()))
}

#[derive(Clone, Debug)]
enum Edit {
    Remove(usize, usize),
    Insert(usize, String),
    Repeat(usize, usize),
    Swap(usize, usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let piece = prop_oneof![
        Just("\"".to_owned()),
        Just("'".to_owned()),
        Just("\"\"\"".to_owned()),
        Just("\n".to_owned()),
        Just("=".to_owned()),
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just("#".to_owned()),
        Just("{".to_owned()),
        Just(".".to_owned()),
        Just("x".to_owned()),
        Just("\u{0}".to_owned()),
        Just("订".to_owned()),
        Just("\u{FEFF}".to_owned()),
        "[ -~]{1,8}",
    ];
    let edit = prop_oneof![
        (0..3000_usize, 1..6_usize).prop_map(|(at, length)| Edit::Remove(at, length)),
        (0..3000_usize, piece).prop_map(|(at, text)| Edit::Insert(at, text)),
        (0..60_usize, 0..60_usize).prop_map(|(line, to)| Edit::Repeat(line, to)),
        (0..60_usize, 0..60_usize).prop_map(|(line, to)| Edit::Swap(line, to)),
    ];
    prop::collection::vec(edit, 1..5)
}

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut text = text.to_owned();
    for edit in edits {
        let at = |at: usize| {
            let mut at = at % (text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        match edit {
            Edit::Remove(from, length) => {
                let from = at(*from);
                let to = at((from + length).min(text.len()));
                if from < to {
                    text.replace_range(from..to, "");
                }
            }
            Edit::Insert(to, piece) => {
                let to = at(*to);
                text.insert_str(to, piece);
            }
            Edit::Repeat(line, to) | Edit::Swap(line, to) => {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                let (line, to) = (line % lines.len().max(1), to % lines.len().max(1));
                if matches!(edit, Edit::Swap(..)) {
                    lines.swap(line, to);
                } else {
                    let copy = lines[line].clone();
                    lines.insert(to, copy);
                }
                text = lines.join("\n") + "\n";
            }
        }
    }
    text
}

#[test]
fn the_configuration_full_of_secrets_has_only_the_planted_faults() {
    let text = full_of_secrets();
    let loaded = config::read(Path::new("/nowhere/payonce.toml"), text.clone().into(), &[]);
    assert!(loaded.faults.is_empty(), "{}", Faults(loaded.faults));
    assert_no_secret(&everything(&text, &[]), &SECRETS, &text);
}

#[test]
fn a_secret_under_every_key_is_never_shown() {
    let keys = full_of_secrets();
    let keys: Vec<&str> = keys.lines().filter_map(|line| line.split_once(" = ")).map(|(key, _)| key.trim()).collect();
    for secret in SECRETS.iter().filter(|secret| secret.len() > 24) {
        for key in keys.iter().chain(&[
            "api_v3_key_file",
            "public_key_file",
            "platform_certificate_files",
            "shop",
            "retry",
            "statement",
            "after",
            "nonsense",
        ]) {
            for section in ["server", "database", "policy", "log", "accounts.wx", "sinks.shop", "nonsense", "shops"] {
                for value in [format!("\"{secret}\""), format!("[\"{secret}\"]"), format!("'''\n{secret}'''")] {
                    let channel =
                        if *key == "channel" || section != "accounts.wx" { "" } else { "channel = \"wechat\"\n" };
                    let kind = if *key == "type" || section != "sinks.shop" { "" } else { "type = \"http\"\n" };
                    let text = format!("[{section}]\n{channel}{kind}{key} = {value}\n");
                    assert_no_secret(&shown(&text, &[]), &[secret], &text);
                }
            }
            let variable = (OsString::from(format!("PAYONCE__SERVER__{}", key.to_uppercase())), OsString::from(secret));
            assert_no_secret(&shown("", &[variable]), &[secret], key);
        }
    }
}

#[test]
fn what_the_processes_print_holds_no_secret() {
    for (from, to) in
        [("mchid", "mch_id"), ("type = \"http\"", "type = \"htpp\""), ("secrets = [", "secrets = "), ("'Qf", "Qf")]
    {
        let text = full_of_secrets().replace(from, to);
        let folder = Folder::with(&text);
        for arguments in [vec!["serve"], vec!["migrate"], vec!["doctor"], vec!["doctor", "--json"]] {
            let done = folder.run(&arguments);
            assert_eq!(done.code, Some(1), "{done:?}");
            assert_no_secret(&format!("{}{}", done.out, done.err), &SECRETS, &text);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in "\\PC{0,200}|[\\[\\]\"'=#.\\n a-z0-9{},]{0,200}") {
        everything(&text, &[]);
    }

    #[test]
    fn no_variable_panics(name in "[A-Z0-9_.]{0,30}", value in "\\PC{0,60}") {
        let name = OsString::from(format!("PAYONCE__{name}"));
        everything(&full_of_secrets(), &[(name, value.into())]);
    }

    #[test]
    fn a_damaged_configuration_shows_no_secret(edits in edits()) {
        let text = edited(&full_of_secrets(), &edits);
        assert_no_secret(&everything(&text, &[]), &SECRETS, &text);
    }
}
