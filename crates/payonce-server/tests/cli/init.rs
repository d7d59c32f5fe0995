//! `payonce init`, and how far a newcomer gets with what it wrote.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::support::{API_V3_KEY, Folder, testdata};

#[test]
fn init_writes_what_doctor_accepts_but_for_the_account() {
    let folder = Folder::empty();
    let done = folder.run(&["init"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
    assert!(done.out.contains("Next:") && done.out.contains("payonce doctor"), "{}", done.out);
    for secret in ["secrets/admin-token", "secrets/webhook-secret"] {
        assert_eq!(fs::metadata(folder.path(secret)).unwrap().permissions().mode() & 0o777, 0o600, "{secret}");
        let text = fs::read_to_string(folder.path(secret)).unwrap();
        assert!(!done.out.contains(text.trim()), "{secret} is shown");
    }
    assert_eq!(fs::metadata(folder.path("secrets")).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_to_string(folder.path("secrets/.gitignore")).unwrap(), "*\n");

    let done = folder.run(&["doctor", "--json"]);
    assert_eq!(done.code, Some(1));
    let answer: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(answer["faults"], 1, "{answer:#}");
    assert!(done.out.contains("no account is configured"), "{}", done.out);
}

#[test]
fn with_the_accounts_uncommented_and_their_keys_it_is_well() {
    let folder = Folder::empty();
    assert_eq!(folder.run(&["init"]).code, Some(0));
    let text = fs::read_to_string(folder.path("payonce.toml")).unwrap();
    let text: String = text
        .lines()
        .map(|line| line.strip_prefix('#').filter(|rest| rest.starts_with(|char: char| char != ' ')).unwrap_or(line))
        .map(|line| format!("{line}\n"))
        .collect();
    folder.write("payonce.toml", &text);
    folder.private("secrets/wechat-api-v3-key", API_V3_KEY);
    folder.write("secrets/wechat-public-key.pem", &testdata("wechat-public.pem"));
    folder.write("secrets/wechat-platform.pem", &testdata("platform.pem"));
    folder.write("secrets/alipay-public-key", &testdata("alipay-public"));
    let done = folder.run(&["doctor", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!((done.code, &answer["faults"], &answer["warnings"]), (Some(0), &0.into(), &0.into()), "{answer:#}");
    let urls = "https://pay.example.com/notify/wechat";
    assert!(done.out.contains(urls), "{}", done.out);
}

#[test]
fn init_replaces_nothing_unless_forced_and_a_secret_never() {
    let folder = Folder::empty();
    folder.write("payonce.toml", "# mine\n");
    let done = folder.run(&["init"]);
    assert_eq!(done.code, Some(1));
    assert!(done.err.contains("./payonce.toml exists already") && done.err.contains("--force"), "{}", done.err);
    assert_eq!(fs::read_to_string(folder.path("payonce.toml")).unwrap(), "# mine\n");
    assert!(!folder.path("secrets").exists());

    assert_eq!(folder.run(&["init", "--force"]).code, Some(0));
    let token = fs::read_to_string(folder.path("secrets/admin-token")).unwrap();
    assert_eq!(token.trim().len(), 64);
    let done = folder.run(&["init", "--force"]);
    assert!(done.out.contains("kept   ./secrets/admin-token"), "{}", done.out);
    assert_eq!(fs::read_to_string(folder.path("secrets/admin-token")).unwrap(), token);
}

#[test]
fn init_in_another_folder_names_it_in_the_next_steps() {
    let folder = Folder::empty();
    let done = folder.run(&["init", "--dir", "etc/payonce"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains("payonce --config etc/payonce/payonce.toml doctor"), "{}", done.out);
    assert!(folder.path("etc/payonce/secrets/admin-token").exists());
    let manual = folder.run(&["init", "--manual"]);
    assert_eq!(manual.out.trim(), payonce_server::config::MANUAL.trim());
    assert!(!folder.path("payonce.toml").exists());
}
