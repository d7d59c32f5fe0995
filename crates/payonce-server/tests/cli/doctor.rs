//! Each planted fault is found by `payonce doctor`, with what to do.

use std::net::TcpListener;

use payonce_sim::keys::RsaKey;

use crate::support::{API_V3_KEY, Done, Folder, WHOLE, testdata};

fn findings(done: &Done) -> serde_json::Value {
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

/// The finding of this level that holds this text; every fault and warning says what to do.
fn find(done: &Done, level: &str, text: &str) {
    let answer = findings(done);
    let all = answer["findings"].as_array().unwrap();
    for finding in all.iter().filter(|finding| finding["level"] != "ok") {
        assert!(finding["todo"].as_str().is_some_and(|todo| todo.len() > 5), "nothing to do: {finding}");
    }
    let found = all.iter().any(|finding| finding["level"] == level && finding["what"].as_str().unwrap().contains(text));
    assert!(found, "no {level} that says {text:?}: {answer:#}");
    assert_eq!(done.code, Some(i32::from(answer["faults"] != 0)));
}

#[test]
fn a_whole_configuration_is_well() {
    let folder = Folder::with(WHOLE);
    let done = folder.run(&["doctor"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    for text in [
        "2 accounts",
        "RSA 2048 bits",
        "PUB_KEY_ID_0000000000000000000001",
        "API v3 key: 32 bytes",
        "GiB free",
        "0 faults, 0 warnings",
    ] {
        assert!(done.out.contains(text), "{text}: {}", done.out);
    }
    let before = folder.run(&["doctor", "--json"]);
    find(&before, "ok", "is made at the first start");
    assert!(!folder.path("payonce.db").exists(), "doctor made a database");
    assert_eq!(folder.run(&["migrate"]).code, Some(0));
    find(&folder.run(&["doctor", "--json"]), "ok", "tables are there, commits are durable");
}

/// Replaces a line's value in the whole configuration.
fn with_line(key: &str, line: &str) -> String {
    assert!(WHOLE.contains(&format!("\n{key} = ")), "{key}");
    WHOLE
        .lines()
        .map(|old| if old.starts_with(&format!("{key} = ")) { line } else { old })
        .fold(String::new(), |text, line| text + line + "\n")
}

#[test]
fn wechat_keys_in_the_wrong_place() {
    let files = |name: &str| {
        let folder = Folder::with(
            &with_line("public_key_id", "platform_certificate_files = [\"secrets/c.pem\"]")
                .replace("public_key_file = \"secrets/wechat-public.pem\"\n", ""),
        );
        folder.write("secrets/c.pem", &testdata(name));
        folder.run(&["doctor", "--json"])
    };
    find(
        &files("platform.pem"),
        "ok",
        "certificate 5157F09EFDC096DE15EBE81A47057A7232F1B8E1: RSA 2048 bits, X.509 certificate",
    );
    find(&files("merchant.pem"), "fault", "merchant's own certificate (apiclient_cert.pem)");
    find(&files("expired.pem"), "fault", "until 2024-01-01: it has run out");
    find(&files("root-other.pem"), "warning", "not by Tenpay.com");
    let private = RsaKey::generate().private_pkcs8_pem();
    let folder = Folder::with(WHOLE);
    folder.write("secrets/wechat-public.pem", &private);
    let done = folder.run(&["doctor", "--json"]);
    find(&done, "fault", "this is a PRIVATE key");
    assert!(!done.out.contains(&private[60..90]), "{}", done.out);
}

#[test]
fn an_expired_certificate_beside_a_lasting_key_is_a_warning() {
    let text = with_line("app_ids", "platform_certificate_files = [\"secrets/c.pem\"]");
    let folder = Folder::with(&text);
    folder.write("secrets/c.pem", &testdata("expired.pem"));
    find(&folder.run(&["doctor", "--json"]), "warning", "it has run out");
}

#[test]
fn api_v3_keys() {
    let folder = Folder::with(WHOLE);
    folder.private("secrets/api-v3-key", "0123456789abcdef");
    find(&folder.run(&["doctor", "--json"]), "fault", "has 16 bytes; an API v3 key has exactly 32");
    let folder = Folder::with(&with_line("app_ids", &format!("previous_api_v3_key = \"{API_V3_KEY}\"")));
    let done = folder.run(&["doctor", "--json"]);
    find(&done, "warning", "the previous one are the same");
    assert!(!done.out.contains(API_V3_KEY));
}

#[test]
fn the_three_alipay_keys_that_are_confused() {
    let app = RsaKey::generate();
    let own = format!("{}\n", app.public_base64());
    for (extra, file, text) in [
        ("app_public_key_file = \"secrets/own\"", own.as_str(), "app's own public key (应用公钥)"),
        ("app_private_key_file = \"secrets/own-private\"", own.as_str(), "app's own public key (应用公钥)"),
        ("sign_type = \"RSA\"", testdata("alipay-mapi").as_str(), "old partner gateway (mapi)"),
        ("sign_type = \"RSA2\"", testdata("alipay-1024").as_str(), "cannot be used: keys"),
        ("sign_type = \"RSA2\"", app.private_pkcs8_base64().as_str(), "this is a PRIVATE key"),
        ("sign_type = \"RSA2\"", testdata("alipay-app.pem").as_str(), "app's own certificate (appCertPublicKey)"),
        ("sign_type = \"RSA2\"", testdata("root-other.pem").as_str(), "root certificate (alipayRootCert)"),
    ] {
        let folder = Folder::with(&WHOLE.replace("seller_id", &format!("{extra}\nseller_id")));
        folder.write("secrets/alipay-public", file);
        folder.write("secrets/own", &own);
        folder.private("secrets/own-private", &app.private_pkcs8_pem());
        find(&folder.run(&["doctor", "--json"]), "fault", text);
    }
}

#[test]
fn what_is_only_doubtful_about_alipay_keys() {
    let (app, other) = (RsaKey::generate(), RsaKey::generate());
    let folder = Folder::with(&WHOLE.replace("seller_id", "sign_type = \"RSA\"\napp_private_key_file = \"secrets/own-private\"\napp_public_key_file = \"secrets/own\"\nseller_id"));
    folder.write("secrets/own", &other.public_base64());
    folder.private("secrets/own-private", &app.private_pkcs8_base64());
    let done = folder.run(&["doctor", "--json"]);
    find(&done, "warning", "do not belong together");
    find(&done, "warning", "sign_type is RSA (SHA-1)");
    folder.private("secrets/own-private", "nonsense");
    find(&folder.run(&["doctor", "--json"]), "fault", "is no RSA private key");
}

#[test]
fn one_key_for_two_platforms() {
    let folder = Folder::with(WHOLE);
    folder.write("secrets/alipay-public", &testdata("wechat-public.pem"));
    find(&folder.run(&["doctor", "--json"]), "fault", "which is of another platform");
}

#[test]
fn secrets_that_others_can_read() {
    let folder = Folder::with(WHOLE);
    find(&folder.run(&["doctor", "--json"]), "ok", "readable by nobody else");
    for secret in ["secrets/api-v3-key", "secrets/webhook-secret", "secrets/admin-token"] {
        folder.chmod(secret, 0o644);
        find(&folder.run(&["doctor", "--json"]), "warning", &format!("{secret} can be read by others (mode 644)"));
        folder.chmod(secret, 0o600);
    }
    let folder = Folder::with(&with_line("api_v3_key_file", &format!("api_v3_key = \"{API_V3_KEY}\"")));
    folder.chmod("payonce.toml", 0o640);
    find(
        &folder.run(&["doctor", "--json"]),
        "warning",
        "payonce.toml can be read by others (mode 640): it holds secrets itself",
    );
    folder.chmod("payonce.toml", 0o600);
    find(&folder.run(&["doctor", "--json"]), "ok", "readable by nobody else");
}

#[test]
fn databases_and_folders() {
    let with = |url: &str| Folder::with(&format!("{WHOLE}\n[database]\nurl = \"{url}\"\n"));
    find(&with("sqlite:nowhere/x.db").run(&["doctor", "--json"]), "fault", "nowhere does not exist");
    let folder = Folder::with(WHOLE);
    folder.write("payonce.db", &"not a database ".repeat(100));
    find(&folder.run(&["doctor", "--json"]), "fault", "payonce.db cannot be opened");
    folder.write("payonce.db", "");
    find(&folder.run(&["doctor", "--json"]), "warning", "has no tables of payonce");
    let folder = with("sqlite:/proc/payonce.db");
    find(&folder.run(&["doctor", "--json"]), "fault", "nothing can be written in /proc");
}

/// A server that is not there is told by every command, and its password by none.
#[test]
fn a_database_server_that_is_away() {
    const PASSWORD: &str = "hunter2-hunter2-hunter2";
    for scheme in ["postgres", "mysql"] {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("{scheme}://payonce:{PASSWORD}@127.0.0.1:{free}/books");
        let folder = Folder::with(&format!("{WHOLE}\n[database]\nurl_file = \"secrets/database-url\"\n"));
        folder.private("secrets/database-url", &url);
        let shown = format!("{scheme}://127.0.0.1:{free}/books cannot be opened");
        let done = folder.run(&["doctor", "--json"]);
        find(&done, "fault", &shown);
        crate::support::assert_no_secret(&format!("{done:?}"), &[PASSWORD], scheme);
        for command in ["migrate", "serve"] {
            let done = folder.run(&[command]);
            assert_eq!(done.code, Some(1), "{done:?}");
            assert!(
                done.err.contains(&format!("the database {scheme}://127.0.0.1:{free}/books cannot be")),
                "{done:?}"
            );
            crate::support::assert_no_secret(&format!("{done:?}"), &[PASSWORD], scheme);
        }
        folder.chmod("secrets/database-url", 0o644);
        find(&folder.run(&["doctor", "--json"]), "warning", "database-url can be read by others (mode 644)");
    }
}

#[test]
fn addresses_and_notify_urls() {
    let with = |line: &str| Folder::with(&with_line("public_url", line)).run(&["doctor", "--json"]);
    find(&with(""), "warning", "public_url in [server] is not set");
    find(&with("public_url = \"http://pay.example.com\""), "warning", "begins with http://");
    find(&with("public_url = \"https://pay.example.com:8443\""), "warning", "port of its own");
    for private in ["https://localhost", "https://192.168.1.4", "https://[::1]", "https://pay.internal", "https://pay"]
    {
        find(&with(&format!("public_url = \"{private}\"")), "fault", "the platforms cannot reach it");
    }
    let long = format!("public_url = \"https://pay.example.com/{}\"", "x".repeat(240));
    find(&with(&long), "fault", "at most 256 are allowed");
    let done = Folder::with(&with_line("admin", "admin = \"0.0.0.0:8081\"")).run(&["doctor", "--json"]);
    find(&done, "warning", "can be reached from other machines");
}

#[test]
fn sinks_are_tried_only_when_asked() {
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = |port: u16| Folder::with(&with_line("url", &format!("url = \"http://127.0.0.1:{port}/hook-4711-token\"")));
    let folder = at(receiver.local_addr().unwrap().port());
    let done = folder.run(&["doctor", "--json"]);
    find(&done, "ok", "not tried");
    let done = folder.run(&["doctor", "--json", "--online"]);
    find(&done, "ok", "accepts connections");
    assert!(!done.out.contains("4711"), "the path may be a secret: {}", done.out);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    find(&at(free).run(&["doctor", "--json", "--online"]), "fault", "no connection");
    let done = Folder::with(&with_line("url", "url = \"http://shop.example.com/\"")).run(&["doctor", "--json"]);
    find(&done, "warning", "sent unencrypted");
}

#[test]
fn faults_of_the_configuration_are_findings_too() {
    let folder = Folder::with(&WHOLE.replace("mchid", "mch_id"));
    let done = folder.run(&["doctor", "--json"]);
    find(&done, "fault", "payonce.toml:9:1: unknown key `mch_id` in [accounts.wx]");
    // The other account is looked at all the same.
    find(&done, "ok", "RSA 2048 bits, SPKI");
    assert!(done.err.is_empty(), "{}", done.err);
    let done = Folder::empty().run(&["--config", "nowhere.toml", "doctor", "--json"]);
    find(&done, "fault", "nowhere.toml: there is no such file");
}
