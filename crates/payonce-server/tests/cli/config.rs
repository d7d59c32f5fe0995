//! Bad configurations and the exact texts they are answered with; overrides; secrets in files.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use payonce_server::config::{self, ChannelSettings, Faults, Loaded};

use crate::support::{API_V3_KEY, Folder, WHOLE, testdata};

/// Reads a text as if it stood in a folder with the secrets of [`WHOLE`].
fn read(text: &str, variables: &[(&str, &str)]) -> (Folder, Loaded) {
    let folder = Folder::with(text);
    let variables: Vec<(OsString, OsString)> =
        variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let loaded = config::read(&folder.path("payonce.toml"), text.to_owned().into(), &variables);
    (folder, loaded)
}

/// The faults as text, without the folder's random name.
fn faults(text: &str, variables: &[(&str, &str)]) -> String {
    let (folder, loaded) = read(text, variables);
    Faults(loaded.faults).to_string().replace(&format!("{}/", folder.path("").display()).replace("//", "/"), "")
}

struct Case {
    title: String,
    variables: Vec<(String, String)>,
    text: String,
    expected: String,
}

fn cases() -> Vec<Case> {
    let all = testdata("faults.txt");
    let (_, cases) = all.split_once("\n=== ").expect("at least one case");
    cases
        .split("\n=== ")
        .map(|case| {
            let (title, rest) = case.split_once('\n').unwrap();
            let (input, expected) = rest.split_once("\n--- expected\n").unwrap_or((rest, ""));
            let (variables, text): (Vec<&str>, Vec<&str>) = input.split('\n').partition(|line| line.starts_with("$ "));
            let variables = variables
                .iter()
                .map(|line| line[2..].split_once('=').unwrap())
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            Case { title: title.to_owned(), variables, text: text.join("\n"), expected: expected.trim().to_owned() }
        })
        .collect()
}

/// `@whole` in a case stands for a configuration without fault, so that only what is tested is wrong.
fn filled(text: &str) -> String {
    text.replace("@whole", WHOLE)
}

#[test]
fn every_bad_configuration_is_answered_with_its_text() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut blessed = testdata("faults.txt").split_once("\n=== ").unwrap().0.to_owned();
    let mut wrong = String::new();
    for case in cases() {
        let variables: Vec<(&str, &str)> =
            case.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let found = faults(&filled(&case.text), &variables);
        assert!(!found.is_empty(), "{}: no fault was found", case.title);
        if found.trim() != case.expected {
            let _ = writeln!(wrong, "{}:\n{found}\n--- expected\n{}\n", case.title, case.expected);
        }
        let _ = write!(blessed, "\n=== {}\n", case.title);
        for (name, value) in &case.variables {
            let _ = writeln!(blessed, "$ {name}={value}");
        }
        let _ = write!(blessed, "{}\n--- expected\n{}\n", case.text, found.trim());
    }
    if bless {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/testdata/faults.txt");
        fs::write(path, blessed).unwrap();
    } else {
        assert!(wrong.is_empty(), "{wrong}");
    }
}

#[test]
fn a_whole_configuration_has_no_fault() {
    assert_eq!(faults(WHOLE, &[]), "");
}

#[test]
fn the_environment_overrides_the_file() {
    let variables = [
        ("PAYONCE__SERVER__PUBLIC", "127.0.0.1:9001"),
        ("PAYONCE__SERVER__MAX_BODY_BYTES", "1000"),
        ("PAYONCE__ACCOUNTS__WX__MCHID", "1900000009"),
        ("PAYONCE__ACCOUNTS__WX__API_V3_KEY", "01234567890123456789012345678901"),
        ("PAYONCE__ACCOUNTS__WX__APP_IDS", "[\"wx1\", \"wx2\"]"),
        ("PAYONCE__EFFECTS__0__DELAY", "1m"),
        ("PAYONCE__SINKS__EXTRA__TYPE", "log"),
        ("PAYONCE__POLICY__UNKNOWN_ORDER_GRACE", "\"5m\""),
        ("PAYONCE_CONFIG", "ignored.toml"),
        ("PAYONCE", "ignored"),
    ];
    let (_folder, loaded) = read(WHOLE, &variables);
    assert_eq!(Faults(loaded.faults).to_string(), "");
    let config = loaded.config;
    assert_eq!(config.server.public.to_string(), "127.0.0.1:9001");
    assert_eq!(config.server.limits.body_bytes, 1000);
    assert_eq!(config.policy.unknown_order_grace, Duration::from_secs(300));
    assert_eq!(config.effects[0].delay, Duration::from_secs(60));
    assert_eq!(config.sinks.len(), 2);
    let wx = config.accounts.iter().find(|account| account.name.as_str() == "wx").unwrap();
    let ChannelSettings::Wechat(wx) = &wx.settings else { panic!("{wx:?}") };
    assert_eq!(wx.mchid, "1900000009");
    assert_eq!(wx.app_ids, ["wx1", "wx2"]);
    // The variable stands in for the file that the configuration names.
    assert_eq!(wx.api_v3_keys[0].expose(), "01234567890123456789012345678901");
    assert_eq!(wx.api_v3_keys[0].origin, "PAYONCE__ACCOUNTS__WX__API_V3_KEY");
}

#[test]
fn an_account_with_a_dash_is_reached_by_a_variable() {
    let text = WHOLE.replace("[accounts.wx]", "[accounts.Wx-Main]");
    let (_folder, loaded) = read(&text, &[("PAYONCE__ACCOUNTS__WX_MAIN__MCHID", "1900000009")]);
    assert_eq!(Faults(loaded.faults).to_string(), "");
    let merchants: Vec<String> =
        loaded.config.accounts.iter().map(|account| account.merchant().unwrap().to_string()).collect();
    assert!(merchants.contains(&"WXPAY:1900000009".to_owned()), "{merchants:?}");
}

#[test]
fn the_environment_alone_will_do() {
    let folder = Folder::with("");
    fs::remove_file(folder.path("payonce.toml")).unwrap();
    let mut command = folder.command(&["migrate"]);
    command
        .env("PAYONCE__ACCOUNTS__WX__CHANNEL", "wechat")
        .env("PAYONCE__ACCOUNTS__WX__MCHID", "1900000001")
        .env("PAYONCE__ACCOUNTS__WX__API_V3_KEY_FILE", "secrets/api-v3-key")
        .env("PAYONCE__ACCOUNTS__WX__PUBLIC_KEY_ID", "PUB_KEY_ID_01")
        .env("PAYONCE__ACCOUNTS__WX__PUBLIC_KEY", testdata("wechat-public.pem"));
    let done = crate::support::Done::of(command.output().unwrap());
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    let done = folder.run(&["migrate"]);
    assert_eq!(done.code, Some(1));
    assert!(done.err.contains("payonce.toml: there is no such file") && done.err.contains("payonce init"), "{done:?}");
}

#[test]
fn secrets_are_read_from_files_beside_the_configuration() {
    let (folder, loaded) = read(WHOLE, &[]);
    let wx = loaded.config.accounts.iter().find(|account| account.name.as_str() == "wx").unwrap();
    let ChannelSettings::Wechat(wx) = &wx.settings else { panic!("{wx:?}") };
    assert_eq!(wx.api_v3_keys[0].expose(), API_V3_KEY);
    assert_eq!(wx.api_v3_keys[0].file, Some(folder.path("secrets/api-v3-key")));
    // What editors put around a text is no part of it.
    folder.write("secrets/api-v3-key", &format!("\u{FEFF}{API_V3_KEY}\r\n\n"));
    let again = config::read(&folder.path("payonce.toml"), WHOLE.to_owned().into(), &[]);
    assert!(again.faults.is_empty(), "{:?}", again.faults);
}

#[test]
fn all_faults_are_reported_at_once_in_the_order_of_the_file() {
    let text = "[server]\npublic = \"x\"\nadmn = 1\n[accounts.a]\nchannel = \"wechat\"\nmchid = 5\n[[effects]]\non = \"order.payed\"\nname = \"n\"\nsink = \"s\"\n";
    let (_folder, loaded) = read(text, &[("PAYONCE__LOG__FORMAT", "xml")]);
    let places: Vec<&str> = loaded
        .faults
        .iter()
        .map(|fault| fault.place.rsplit_once("payonce.toml").map_or(fault.place.as_str(), |(_, place)| place))
        .collect();
    assert_eq!(
        places,
        [":2:10", ":3:1", ":4:11", ":4:11", ":6:9", ":8:6", "environment variable PAYONCE__LOG__FORMAT"],
        "{}",
        Faults(loaded.faults.clone())
    );
}

#[test]
fn the_database_is_beside_the_configuration() {
    let path = |url: &str| {
        let text = format!("[database]\nurl = \"{url}\"\n");
        let loaded = config::read(Path::new("/etc/payonce/payonce.toml"), text.into(), &[]);
        loaded.config.database.place.as_file().unwrap().to_owned()
    };
    assert_eq!(path("sqlite:books.db"), PathBuf::from("/etc/payonce/books.db"));
    assert_eq!(path("sqlite://books.db"), PathBuf::from("/etc/payonce/books.db"));
    assert_eq!(path("sqlite:///var/lib/payonce.db"), PathBuf::from("/var/lib/payonce.db"));
}

/// Named here, in a file, or by a variable, which counts; shown without its password.
#[test]
fn a_database_on_a_server_is_named_in_three_ways() {
    const HERE: &str = "url = \"postgresql://pay:here-hunter2@db:5433/books?sslmode=verify-full\"";
    let url = "mariadb://pay:file%40hunter2@[::1]/books?ssl-mode=VERIFY_IDENTITY";
    let variable = ("PAYONCE__DATABASE__URL", "mysql://pay:variable-hunter2@db/books");
    let cases = [
        (HERE, None, "PostgreSQL", "postgresql://db:5433/books"),
        ("url_file = \"secrets/database-url\"", None, "MySQL", "mariadb://[::1]/books"),
        (HERE, Some(variable), "MySQL", "mysql://db/books"),
        ("url_file = \"secrets/database-url\"", Some(variable), "MySQL", "mysql://db/books"),
    ];
    for (line, variable, engine, shown) in cases {
        let folder = Folder::with("");
        folder.private("secrets/database-url", &format!("{url}\n"));
        let text = format!("{WHOLE}\n[database]\n{line}\n");
        let variables: Vec<(OsString, OsString)> =
            variable.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let loaded = config::read(&folder.path("payonce.toml"), text.into(), &variables);
        assert_eq!(Faults(loaded.faults).to_string(), "");
        let place = loaded.config.database.place.clone();
        assert_eq!((place.engine().name, place.to_string().as_str()), (engine, shown));
        assert!(place.url().unwrap().expose().contains("hunter2"));
        assert!(!format!("{:?}", loaded.config).contains("hunter2"));
    }
}
