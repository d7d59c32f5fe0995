//! `payonce demo` as a newcomer runs it: the process, its exit code, its figures, both languages.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// The demo with a temporary folder of its own, so that it can be seen what is left there.
struct Demo {
    command: Command,
    temporary: tempfile::TempDir,
}

impl Demo {
    fn with(arguments: &[&str]) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_payonce"));
        command.arg("demo").args(arguments).env("TMPDIR", temporary.path());
        for name in ["LC_ALL", "LC_MESSAGES", "LANG", "RUST_LOG"] {
            command.env_remove(name);
        }
        Self { command, temporary }
    }

    fn run(&mut self) -> Output {
        self.command.output().unwrap()
    }

    /// Folders of the demo that are still there.
    fn left(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.temporary.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Issue 2, what it must show, 3: one idempotency row, one flow row, one PAID, each effect once.
#[test]
fn a_hundred_callbacks_twenty_at_once_are_booked_once() {
    let mut demo = Demo::with(&["--json", "--seed", "7"]);
    let started = Instant::now();
    let output = demo.run();
    let elapsed = started.elapsed();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{report:#}");
    assert_eq!((&report["holds"], &report["wrong"], &report["audit"]), (&json!(true), &json!([]), &json!([])));
    assert!(report["checked"].as_u64().unwrap() > 80);
    for (at, platform, answers) in [(0, "wechat", json!({"204": 100})), (1, "alipay", json!({"200 success": 100}))] {
        let it = &report["repeats"][at];
        assert_eq!((&it["platform"], &it["answers"], &it["status"]), (&json!(platform), &answers, &json!("PAID")));
        for (figure, due) in [
            ("delivered", 100),
            ("acknowledged", 100),
            ("idempotency_rows", 1),
            ("repeats_counted", 99),
            ("flow_rows", 1),
            ("stock_taken", 1),
            ("webhook_keys", 2),
        ] {
            assert_eq!(it[figure], due, "{platform} {figure}");
        }
    }
    let words: Vec<(&str, &str)> = report["odd"]
        .as_array()
        .unwrap()
        .iter()
        .map(|odd| (odd["answered"].as_str().unwrap(), odd["word"].as_str().unwrap()))
        .collect();
    let due = [
        ("401 FAIL", "signature"),
        ("401 fail", "signature"),
        ("401 FAIL", "probe"),
        ("401 FAIL", "timestamp"),
        ("500 FAIL", "undecryptable"),
        ("403 fail", "foreign_identity"),
        ("204", "applied_mismatched"),
        ("503 fail", "held_unknown_order"),
    ];
    assert_eq!(words, due);
    for race in report["races"].as_array().unwrap() {
        let (rounds, conditional) = (&race["rounds"], &race["conditional"]);
        assert_eq!((&conditional["total"], &conditional["worst"]), (rounds, &json!(1)), "{race}");
        assert!(race["look_then_update"]["total"].as_i64() >= rounds.as_i64(), "{race}");
    }
    // Generous: other tests run beside it. Alone it takes two seconds.
    assert!(elapsed < Duration::from_secs(20), "it took {elapsed:?}");
    assert_eq!((&report["database"], demo.left()), (&Value::Null, vec![]), "nothing is left behind");
}

#[test]
fn it_is_told_in_two_languages_and_keeps_what_it_should() {
    let few = ["--keep", "--times", "5", "--concurrency", "2", "--seed", "65535"];
    for (locale, arguments, words) in [
        (None, vec![], "Everything holds: "),
        (Some("zh_CN.UTF-8"), vec![], "全部成立："),
        (Some("zh_CN.UTF-8"), vec!["--lang", "en"], "Everything holds: "),
        (None, vec!["--lang", "zh"], "全部成立："),
    ] {
        let mut demo = Demo::with(&[few.as_slice(), &arguments].concat());
        if let Some(locale) = locale {
            demo.command.env("LANG", locale);
        }
        let output = demo.run();
        let out = text(&output.stdout);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{out}");
        for part in [words, "DEMO-WX-1", "5 x 204", "5 x 200 success", "--times 5 --concurrency 2 --seed 65535"] {
            assert!(out.contains(part), "{part}: {out}");
        }
        assert!(!out.contains('\u{1b}'), "no colour and no progress bar where there is no terminal: {out}");
        let left = demo.left();
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(out.contains(&left[0].join("payonce.db").display().to_string()), "{out}");
        let log = std::fs::read_to_string(left[0].join("gateway.log")).unwrap();
        assert!(log.contains("a repeat"), "{log}");
    }
}

/// What it prints can be pasted into a shell, as far as the tools are there.
#[test]
fn the_commands_it_prints_work() {
    let mut demo = Demo::with(&["--keep", "--times", "2", "--concurrency", "2", "--lang", "zh"]);
    let out = text(&demo.run().stdout);
    let script = format!("DB={}", out.split("\n  DB=").nth(1).unwrap());
    let shell = Command::new("sh").args(["-c", &script]).output().unwrap();
    let answers = [("sqlite3", "WXPAY:DEMO-WX-1:PAY|1\n"), ("python3", "default:DEMO-WX-1:order-paid:ship done\n")];
    for (tool, answer) in answers {
        if Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success()) {
            assert!(text(&shell.stdout).contains(answer), "{tool}: {shell:?}\n{script}");
        }
    }
}

/// What it printed with `--keep` is a configuration like any other: `serve` starts on it.
#[test]
fn the_kept_folder_can_be_served_again() {
    let mut demo = Demo::with(&["--keep", "--times", "2", "--concurrency", "2"]);
    assert_eq!(demo.run().status.code(), Some(0));
    let config = demo.left()[0].join("payonce.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_payonce"));
    command.arg("--config").arg(config).arg("serve");
    let mut child = Held(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let lines = child.read_until("/notify/wechat");
    assert!(lines.contains("/notify/alipay"), "{lines}");
    child.interrupt();
}

#[test]
fn serving_stays_up_until_ctrl_c_and_can_be_talked_to() {
    let mut demo = Demo::with(&["--serve", "--times", "2", "--concurrency", "2"]);
    let mut child = Held(demo.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let out = child.read_until("Ctrl-C");
    let admin = out.split("with this token: http://").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let token = out.split("Bearer ").nth(1).unwrap().split('\'').next().unwrap().to_owned();
    let mut stream = TcpStream::connect(&admin).unwrap();
    let request = format!(
        "GET /api/orders/DEMO-WX-1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#""status":"PAID""#), "{answer}");
    child.interrupt();
    assert_eq!(demo.left().len(), 1);
}

#[test]
fn options_that_cannot_be_meant_are_refused() {
    for (arguments, word) in [
        (["--times", "0"], "0 is not in 1..="),
        (["--concurrency", "0"], "0 is not in 1..="),
        (["--lang", "fr"], "possible values: en, zh"),
        (["--seed", "x"], "invalid digit"),
        (["--json", "--serve"], "cannot be used with"),
    ] {
        let output = Demo::with(&arguments).run();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(word), "{arguments:?}: {}", text(&output.stderr));
    }
}

/// A folder that cannot be made is no wrong figure, but it is no success either.
#[test]
fn where_it_cannot_be_played_it_says_why() {
    let mut demo = Demo::with(&["--lang", "en"]);
    demo.command.env("TMPDIR", "/nowhere/at/all");
    let output = demo.run();
    assert_eq!(output.status.code(), Some(1));
    let err = text(&output.stderr);
    assert!(
        err.contains("the demo could not be played") && err.contains("to do: look at the temporary folder"),
        "{err}"
    );
}

/// A process, killed if the test ends early.
struct Held(Child);

impl Held {
    /// Its lines up to the first that holds a text.
    fn read_until(&mut self, last: &str) -> String {
        let mut out = String::new();
        let mut lines = BufReader::new(self.0.stdout.as_mut().unwrap());
        while !out.contains(last) {
            assert!(lines.read_line(&mut out).unwrap() > 0, "it ended: {out}");
        }
        out
    }

    /// Ctrl-C; it must end well.
    fn interrupt(mut self) {
        assert!(Command::new("kill").args(["-INT", &self.0.id().to_string()]).status().unwrap().success());
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(ended) = self.0.try_wait().unwrap() {
                assert_eq!(ended.code(), Some(0));
                return;
            }
            assert!(Instant::now() < until, "it did not stop");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // It has ended already unless an assertion failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
