//! `payonce serve` and `payonce migrate` as processes.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::support::{ADMIN_TOKEN, Folder, WHOLE};

const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway as a process; killed if a test forgets it.
struct Gateway {
    child: Child,
    start: Vec<String>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Gateway {
    fn start(folder: &Folder) -> Self {
        let mut command = folder.command(&["serve"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (send, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || out.lines().map_while(Result::ok).for_each(|line| drop(send.send(line))));
        let mut start = Vec::new();
        let until = Instant::now() + PATIENCE;
        while !start.iter().any(|line: &String| line.contains("/notify/wx")) {
            let left = until.saturating_duration_since(Instant::now());
            match lines.recv_timeout(left) {
                Ok(line) => start.push(line),
                Err(_) => {
                    let _ = child.kill();
                    let mut err = String::new();
                    let _ = child.stderr.take().unwrap().read_to_string(&mut err);
                    panic!("it did not start: {start:?}\n{err}");
                }
            }
        }
        Self { child, start }
    }

    /// The address behind a word of the first lines.
    fn address(&self, word: &str) -> String {
        let line = self.start.iter().find(|line| line.trim_start().starts_with(word)).unwrap();
        line.split("http://").nth(1).unwrap().to_owned()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// The exit code and what was logged.
    fn wait(mut self) -> (Option<i32>, String) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let mut err = String::new();
                self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
                return (status.code(), err);
            }
            assert!(Instant::now() < until, "it did not stop");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The status of a request without a body.
fn get(address: &str, path: &str, token: Option<&str>) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n{authorization}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn serve_starts_answers_and_stops_when_told() {
    let folder = Folder::with(WHOLE);
    for signal in ["TERM", "INT"] {
        let gateway = Gateway::start(&folder);
        let text = gateway.start.join("\n");
        assert!(text.contains("https://pay.example.com/notify/ali"), "{text}");
        let admin = gateway.address("admin");
        assert_eq!(get(&admin, "/healthz", None), 200);
        assert_eq!(get(&admin, "/metrics", None), 401);
        assert_eq!(get(&admin, "/metrics", Some(ADMIN_TOKEN)), 200);
        gateway.signal(signal);
        let (code, err) = gateway.wait();
        assert_eq!(code, Some(0), "{signal}: {err}");
        assert!(!err.contains("panicked"), "{err}");
    }
}

#[test]
fn without_a_token_one_is_made_beside_the_database_and_kept() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::with(&WHOLE.replace("admin_token_file = \"secrets/admin-token\"\n", ""));
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let gateway = Gateway::start(&folder);
        let path = folder.path("payonce.db.admin-token");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let token = fs::read_to_string(&path).unwrap().trim().to_owned();
        assert_eq!(get(&gateway.address("admin"), "/metrics", Some(&token)), 200);
        assert!(gateway.start.join("\n").contains("payonce.db.admin-token"), "{:?}", gateway.start);
        gateway.signal("TERM");
        let (code, err) = gateway.wait();
        assert_eq!(code, Some(0));
        assert!(!err.contains(&token), "the token is logged");
        tokens.push(token);
    }
    assert_eq!(tokens[0], tokens[1]);
}

#[test]
fn logs_are_json_when_asked_for() {
    let folder = Folder::with(&format!("{WHOLE}\n[log]\nformat = \"json\"\n"));
    let gateway = Gateway::start(&folder);
    gateway.signal("TERM");
    let (_, err) = gateway.wait();
    assert!(err.lines().count() > 0);
    for line in err.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
}

#[test]
fn an_address_that_is_taken_is_told_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = Folder::with(&WHOLE.replacen("127.0.0.1:0", &address, 1));
    let done = folder.run(&["serve"]);
    assert_eq!(done.code, Some(1));
    assert!(done.err.contains(&format!("cannot listen on {address}")) && done.err.contains("to do: "), "{}", done.err);
    assert!(!done.err.contains('\u{1b}'), "colours are for terminals: {:?}", done.err);
    assert!(!done.err.contains("Os {") && !done.err.contains("StartError"), "{}", done.err);
}

#[test]
fn a_bad_rust_log_is_told() {
    let folder = Folder::with(WHOLE);
    let done = crate::support::Done::of(folder.command(&["serve"]).env("RUST_LOG", "info,x=loud").output().unwrap());
    assert_eq!(done.code, Some(1));
    assert!(done.err.contains("RUST_LOG"), "{}", done.err);
}

#[test]
fn migrate_says_what_was_applied_and_the_second_time_nothing() {
    let folder = Folder::with(WHOLE);
    let first = folder.run(&["migrate"]);
    assert_eq!((first.code, first.err.as_str()), (Some(0), ""));
    assert!(first.out.contains("payonce.db: applied migration"), "{}", first.out);
    let second = folder.run(&["migrate", "--config", "payonce.toml"]);
    assert_eq!(second.code, Some(0));
    assert!(second.out.contains("up to date"), "{}", second.out);
    fs::rename(folder.path("payonce.toml"), folder.path("other.toml")).unwrap();
    let third = folder.command(&["migrate"]).env("PAYONCE_CONFIG", "other.toml").output().unwrap();
    assert!(third.status.success(), "{third:?}");
}

#[test]
fn a_database_that_is_none_or_has_no_folder_is_told() {
    let folder = Folder::with(WHOLE);
    folder.write("payonce.db", &"not a database ".repeat(100));
    for command in ["migrate", "serve"] {
        let done = folder.run(&[command]);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(
            done.err.contains("payonce.db cannot be brought up to date") && done.err.contains("doctor"),
            "{}",
            done.err
        );
    }
    let folder = Folder::with(&format!("{WHOLE}\n[database]\nurl = \"sqlite:nowhere/payonce.db\"\n"));
    let done = folder.run(&["migrate"]);
    assert!(done.err.contains("nowhere does not exist") && done.err.contains("mkdir -p"), "{}", done.err);
}
