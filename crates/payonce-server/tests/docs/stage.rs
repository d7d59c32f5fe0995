//! One page played: a folder, a gateway, two simulated platforms, a shop.
//!
//! Ports 8080 (callbacks), 8081 (admin), 3000 (the shop's service), 5432 and 3306 (database servers of the page's own)
//! stand for free ones, in blocks and in what they print. Commands of a page share their variables, as in a reader's terminal.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use payonce_server::config;
use payonce_sim::{Alipay, Request, Wechat, courier::Courier, receiver, text};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{
    blocks::{self, Block, Kind, Page, Step},
    databases::{self, own::OwnServer},
};

const PATIENCE: Duration = Duration::from_secs(30);
const PORTS: [&str; 5] = ["8080", "8081", "3000", "5432", "3306"];
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8G";

/// What pages that begin with a running gateway find there.
const STAGE: &str = r#"
[server]
public_url = "https://pay.example.com"
admin_token_file = "secrets/admin-token"

[accounts.wechat]
channel = "wechat"
mchid = "1900000001"
api_v3_key_file = "secrets/wechat-api-v3-key"
public_key_id = "PUB_KEY_ID_0000000000000000000001"
public_key_file = "secrets/wechat-public-key.pem"

[accounts.alipay]
channel = "alipay"
app_id = "2021000000000001"
seller_id = "2088000000000001"
alipay_public_key_file = "secrets/alipay-public-key"

[[effects]]
on = "order.paid"
name = "ship"
sink = "shop"

[sinks.shop]
type = "http"
url = "http://127.0.0.1:3000/payonce"
secret_file = "secrets/webhook-secret"
"#;

pub(crate) struct Stage<'p> {
    page: &'p Page,
    dir: tempfile::TempDir,
    ports: [String; 5],
    wechat: Wechat,
    alipay: Alipay,
    runtime: tokio::runtime::Runtime,
    shop: Option<receiver::Receiver>,
    /// The database server that was started last.
    server: Option<OwnServer>,
    children: Vec<Child>,
    /// The receiver that was to be started last needs a language that is not here.
    absent: bool,
    /// What the last command printed.
    printed: String,
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        if thread::panicking() {
            for entry in fs::read_dir(self.dir.path()).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().ends_with(".log") {
                    eprintln!(
                        "--- {}\n{}",
                        entry.path().display(),
                        fs::read_to_string(entry.path()).unwrap_or_default()
                    );
                }
            }
        }
    }
}

impl<'p> Stage<'p> {
    pub(crate) fn new(page: &'p Page) -> Self {
        let listeners = [(); 5].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = listeners.map(|listener| listener.local_addr().unwrap().port().to_string());
        let mut wechat = Wechat::new("1900000001");
        wechat.pub_key_id = "PUB_KEY_ID_0000000000000000000001".to_owned();
        wechat.appid = "wx0000000000000001".to_owned();
        let alipay = Alipay::new("2021000000000001", "2088000000000001");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        Self {
            page,
            dir,
            ports,
            wechat,
            alipay,
            runtime,
            shop: None,
            server: None,
            children: Vec::new(),
            absent: false,
            printed: String::new(),
        }
    }

    pub(crate) fn play(mut self) {
        let page = self.page;
        for step in &page.steps {
            match step {
                Step::Block(block) => self.block(block),
                Step::Act { words, line } => {
                    let words: Vec<&str> = words.iter().map(String::as_str).collect();
                    self.act(&words, &format!("{}:{line}", page.path));
                }
            }
        }
    }

    fn block(&mut self, block: &Block) {
        let place = format!("{}:{}", self.page.path, block.line);
        let body = numbers(&block.body, &PORTS, &self.ports);
        match block.kind {
            Kind::Run => {
                let script = format!(
                    "set -euo pipefail; set -a; [ -f .test-env ] && . ./.test-env\n{body}\nexport -p > .test-env\n"
                );
                let output = self.command("bash").args(["-c", &script]).output().unwrap();
                self.printed = self.success(&output, &place);
            }
            Kind::Serve => self.serve(block, &body, &place),
            Kind::Config => self.config(&body, &block.argument, &place),
            Kind::Answer => {
                let got: Value = serde_json::from_str(&self.printed)
                    .unwrap_or_else(|error| panic!("{place}: before it was printed ({error}): {}", self.printed));
                let want: Value = serde_json::from_str(&block.body).unwrap_or_else(|error| panic!("{place}: {error}"));
                assert!(steady(want) == steady(got.clone()), "{place}: it is\n{got:#}");
            }
            Kind::Output => {
                let got = numbers(&self.printed, &self.ports.each_ref().map(String::as_str), &PORTS.map(str::to_owned));
                let got = got.replace(&self.dir.path().display().to_string(), "…");
                assert!(matches(block.body.trim(), got.trim()), "{place}: it is\n{got}");
            }
            Kind::Sql => self.runtime.block_on(self.sql(&body, &place)),
            Kind::Admin => self.runtime.block_on(async {
                let server = self.server.as_ref().unwrap_or_else(|| panic!("{place}: no server was started"));
                let mut admin = databases::Connection::open(&server.admin_url()).await;
                for statement in body.split(";\n").filter(|statement| !statement.trim().is_empty()) {
                    admin.run(statement).await;
                }
            }),
            Kind::Json => drop(serde_json::from_str::<Value>(&body).unwrap_or_else(|error| panic!("{place}: {error}"))),
            Kind::Excerpt => {
                let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
                let whole = squeeze(&blocks::source(&block.argument));
                // `// …` stands for what is left out.
                for part in block.body.split("// …\n") {
                    assert!(whole.contains(&squeeze(part)), "{place}: not so in {}:\n{part}", block.argument);
                }
            }
            Kind::Text => {}
        }
    }

    fn command(&self, program: &str) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_payonce")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
        let secret = fs::read_to_string(self.dir.path().join("secrets/webhook-secret")).unwrap_or_default();
        let mut command = Command::new(program);
        command.current_dir(self.dir.path()).env("PATH", path).env("no_proxy", "*").env("NO_COLOR", "1");
        command.env("WEBHOOK_SECRET", secret.trim());
        command.env("PAYONCE__SERVER__PUBLIC", format!("0.0.0.0:{}", self.ports[0]));
        command.env("PAYONCE__SERVER__ADMIN", format!("127.0.0.1:{}", self.ports[1]));
        command.env_remove("PAYONCE_CONFIG").env_remove("RUST_LOG").stdin(Stdio::null());
        command
    }

    fn success(&self, output: &Output, place: &str) -> String {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{place}: {}\n{out}\n{err}", output.status);
        out.into_owned()
    }

    fn serve(&mut self, block: &Block, body: &str, place: &str) {
        let mut command = match block.language.as_str() {
            "sh" => {
                let mut command = self.command("bash");
                command.args(["-c", &format!("exec {}", body.trim())]);
                command
            }
            // The other two are there wherever the tests are: other people's payment software runs on them.
            "java" if Command::new("java").arg("-version").output().is_err() => {
                eprintln!("{place}: there is no Java here, so this receiver was not tried");
                self.absent = true;
                return;
            }
            language => {
                fs::write(self.dir.path().join(&block.argument), body).unwrap();
                let program = [("js", "node"), ("python", "python3"), ("java", "java")].into_iter();
                let program = program.into_iter().find(|(name, _)| *name == language).unwrap().1;
                let mut command = self.command(program);
                command.arg(&block.argument);
                command
            }
        };
        let log = self.dir.path().join(format!("serve-{}.log", self.children.len()));
        command.stdout(File::create(&log).unwrap());
        command.stderr(File::create(log.with_extension("err.log")).unwrap());
        let child = command.spawn().unwrap_or_else(|error| panic!("{place}: {} is needed: {error}", block.language));
        self.children.push(child);
        self.reachable(if block.language == "sh" { 0 } else { 2 }, place);
        if block.language == "sh" {
            self.printed = self.printed_by_now(&log);
        }
    }

    /// What stands in a file that somebody may still be writing.
    fn printed_by_now(&self, log: &Path) -> String {
        let until = Instant::now() + PATIENCE;
        let mut before = String::new();
        loop {
            thread::sleep(Duration::from_millis(200));
            let now = fs::read_to_string(log).unwrap();
            if !now.is_empty() && now == before || Instant::now() > until {
                return now;
            }
            before = now;
        }
    }

    fn reachable(&mut self, port: usize, place: &str) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[port].parse().unwrap()));
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            let ended = self.children.last_mut().and_then(|child| child.try_wait().unwrap());
            assert!(ended.is_none() && Instant::now() < until, "{place}: it does not listen; {ended:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Reads a configuration, alone or, if it has no account, after the stage's accounts.
    fn config(&self, body: &str, file: &str, place: &str) {
        self.keys();
        let accounts = STAGE.split("\n\n").filter(|part| part.contains("[accounts")).collect::<Vec<_>>().join("\n\n");
        let whole = if body.contains("[accounts") { body.to_owned() } else { format!("{accounts}\n{body}") };
        let loaded = config::read(&self.dir.path().join("payonce.toml"), whole.into(), &[]);
        assert!(loaded.faults.is_empty(), "{place}: {}", config::Faults(loaded.faults));
        if !file.is_empty() {
            fs::write(self.dir.path().join(file), body).unwrap();
        }
    }

    fn keys(&self) {
        let secrets = self.dir.path().join("secrets");
        fs::create_dir_all(&secrets).unwrap();
        let files = [
            ("wechat-api-v3-key", self.wechat.api_v3_key.clone()),
            ("wechat-api-v3-key-before", "0123456789abcdef0123456789abcdef".to_owned()),
            ("wechat-public-key.pem", self.wechat.public_key.public_pem()),
            ("alipay-public-key", self.alipay.key.public_base64()),
            ("webhook-secret", SECRET.to_owned()),
            ("admin-token", "an-admin-token-of-the-docs".to_owned()),
        ];
        for (name, text) in files.into_iter().filter(|(name, _)| !secrets.join(name).exists()) {
            fs::write(secrets.join(name), text).unwrap();
        }
    }

    /// What readers do not see. See each arm.
    fn act(&mut self, words: &[&str], place: &str) {
        match *words {
            // Keys of both platforms are in the folder `secrets`.
            ["keys"] => self.keys(),
            // A gateway runs, and a shop takes its effects.
            ["stage"] => {
                self.keys();
                self.config(&numbers(STAGE, &PORTS, &self.ports), "payonce.toml", place);
                self.act(&["shop"], place);
                let block = Block {
                    language: "sh".to_owned(),
                    kind: Kind::Serve,
                    argument: String::new(),
                    body: String::new(),
                    line: 0,
                };
                self.serve(&block, "payonce serve", place);
            }
            // A configuration whose database is named in a file of its own.
            ["configured"] => {
                self.keys();
                let text = numbers(STAGE, &PORTS, &self.ports) + "\n[database]\nurl_file = \"secrets/database-url\"\n";
                self.config(&text, "payonce.toml", place);
            }
            // A server of this page's own, in the place of the one before.
            ["postgres"] => self.database_server(databases::Kind::Postgres18, 3),
            ["mariadb"] => self.database_server(databases::Kind::Mariadb, 4),
            // A shop takes effects at port 3000.
            ["shop"] => {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[2].parse().unwrap()));
                let secret = fs::read_to_string(self.dir.path().join("secrets/webhook-secret")).unwrap();
                let started = receiver::Receiver::start_at(address, Some(secret.trim()));
                self.shop = Some(self.runtime.block_on(started).unwrap());
            }
            ["shop", "leaves"] => {
                let address = self.shop.take().unwrap().address();
                // Its task ends a moment later; until then whoever connects would meet the wrong one.
                while TcpStream::connect(address).is_ok() {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            ["wechat", "pays", number, fen, trade] => {
                let paid = self.wechat.payment(number, trade, fen.parse().unwrap());
                let request = self.wechat.notify_payment(&paid).send(text::now_unix(), Default::default());
                assert_eq!(self.deliver("wechat", &request).0, 204, "{place}");
            }
            // A callback is refused with this status.
            ["wechat", "pays", number, fen, trade, "refused", status] => {
                let paid = self.wechat.payment(number, trade, fen.parse().unwrap());
                let request = self.wechat.notify_payment(&paid).send(text::now_unix(), Default::default());
                assert_eq!(self.deliver("wechat", &request).0.to_string(), status, "{place}");
            }
            ["wechat", "refunds", number, total, fen, trade, refund_no] => {
                let (total, fen) = (total.parse().unwrap(), fen.parse().unwrap());
                let refund = self.wechat.refund(number, trade, refund_no, total, fen);
                let request = self.wechat.notify_refund(&refund).send(text::now_unix(), Default::default());
                assert_eq!(self.deliver("wechat", &request).0, 204, "{place}");
            }
            ["alipay", "pays", number, yuan, trade] => {
                let request = self.alipay.notify(self.alipay.payment(number, trade, yuan)).send(text::now_unix());
                assert_eq!(self.deliver("alipay", &request), (200, "success".to_owned()), "{place}");
            }
            // The shop asked WeChat Pay, and keeps the answer in two files.
            ["wechat", "answers", number, fen, trade] => {
                let answer =
                    self.wechat.answer(&self.wechat.payment(number, trade, fen.parse().unwrap()), text::now_unix());
                let headers = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\n"));
                fs::write(self.dir.path().join("answer.headers"), headers.collect::<String>()).unwrap();
                fs::write(self.dir.path().join("answer.body"), &answer.body).unwrap();
            }
            // All effects are delivered.
            ["effects", "done"] => self.runtime.block_on(self.effects_done(place)),
            // An effect has been given up.
            ["effect", "dies", key] => self.runtime.block_on(async {
                let mut database = self.database().await;
                let gone = sqlx::query(
                    "UPDATE payonce_effect SET state = 'dead', tries = 4, done_at = NULL WHERE effect_key = ?",
                );
                assert_eq!(gone.bind(key).execute(&mut database).await.unwrap().rows_affected(), 1, "{place}");
            }),
            ["receiver", "ships", _] if self.absent => {}
            ["stop"] if self.absent => self.absent = false,
            // The receiver that was started last does its work once, and believes no stranger.
            ["receiver", "ships", order_no] => self.receiver(order_no, place),
            ["receiver", "shipped", order_no] => self.shipped(order_no, place),
            ["stop"] => {
                let mut child = self.children.pop().unwrap();
                child.kill().unwrap();
                child.wait().unwrap();
            }
            _ => panic!("{place}: no such act: {words:?}"),
        }
    }

    fn database_server(&mut self, kind: databases::Kind, port: usize) {
        self.server = None;
        let port = self.ports[port].parse().unwrap();
        self.server = Some(self.runtime.block_on(OwnServer::start_on(kind, port, &[])));
    }

    fn deliver(&self, account: &str, request: &Request) -> (u16, String) {
        let url = format!("http://127.0.0.1:{}/notify/{account}", self.ports[0]);
        let delivered = self.runtime.block_on(Courier.deliver(&url, request, PATIENCE)).outcome.unwrap();
        (delivered.status, String::from_utf8(delivered.body).unwrap())
    }

    async fn database(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.dir.path().join("payonce.db"));
        SqliteConnection::connect_with(&options.busy_timeout(PATIENCE)).await.unwrap()
    }

    async fn sql(&self, text: &str, place: &str) {
        let text = text.replace("'payonce-backup.db'", &format!("'{}/payonce-backup.db'", self.dir.path().display()));
        let done = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut self.database().await).await;
        done.unwrap_or_else(|error| panic!("{place}: {error}"));
    }

    async fn effects_done(&self, place: &str) {
        const OPEN: &str = "SELECT count(*) FROM payonce_effect WHERE state IN ('ready', 'leased')";
        let mut database = self.database().await;
        let until = Instant::now() + PATIENCE;
        loop {
            let open: i64 = sqlx::query(OPEN).fetch_one(&mut database).await.unwrap().get(0);
            if open == 0 {
                return;
            }
            assert!(Instant::now() < until, "{place}: {open} effects are not delivered");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn receiver(&self, order_no: &str, place: &str) {
        let key = format!("default:{order_no}:order-paid:ship");
        let body =
            format!(r#"{{"version":1,"key":"{key}","event":"order.paid","name":"ship","order_no":"{order_no}"}}"#);
        let secret = fs::read_to_string(self.dir.path().join("secrets/webhook-secret")).unwrap();
        let secret = receiver::secret_bytes(secret.trim()).unwrap();
        let now = text::now_unix();
        let post = |at: i64, signed: &str, sent: &str| {
            let right = receiver::signature(&secret, &key, &at.to_string(), signed.as_bytes());
            // While a secret is being changed there are two signatures.
            let signature = format!("v1,AAAA {right}");
            let url = format!("http://127.0.0.1:{}/payonce", self.ports[2]);
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let request = client.post(url).header("webhook-id", &key).header("webhook-timestamp", at.to_string());
            let answer =
                self.runtime.block_on(request.header("webhook-signature", signature).body(sent.to_owned()).send());
            answer.unwrap_or_else(|error| panic!("{place}: {error:?}")).status().as_u16()
        };
        assert_eq!(post(now, "{}", &body), 401, "{place}: a forged delivery");
        assert_eq!(post(now - 3600, &body, &body), 401, "{place}: a delivery of an hour ago");
        for copy in 0..3 {
            assert_eq!(post(now, &body, &body), 204, "{place}: copy {copy}");
        }
        self.shipped(order_no, place);
    }

    fn shipped(&self, order_no: &str, place: &str) {
        let logs = fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let logs = logs.filter(|path| path.extension().is_some_and(|end| end == "log"));
        let said: String = logs.map(|path| fs::read_to_string(path).unwrap()).collect();
        let times = said.lines().filter(|line| *line == format!("ship {order_no}")).count();
        assert_eq!(times, 1, "{place}: shipped {times} times\n{said}");
    }
}

/// Whole numbers replaced by others.
fn numbers(text: &str, from: &[&str], to: &[String]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
        let (number, more) = rest.split_at(end);
        let at = from.iter().position(|from| *from == number);
        out.push_str(at.map_or(number, |at| &to[at]));
        let next = more.find(|char: char| char.is_ascii_digit()).unwrap_or(more.len());
        out.push_str(&more[..next]);
        rest = &more[next..];
    }
    out
}

/// Times, ids and sizes differ from run to run.
fn steady(value: Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .map(|(name, value)| match (name.as_str(), &value) {
                    ("body_bytes", Value::Number(_)) | ("version", Value::String(_)) => (name, Value::Bool(true)),
                    _ => (name, steady(value)),
                })
                .collect(),
        ),
        Value::Array(items) => items.into_iter().map(steady).collect(),
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => "a time".into(),
        Value::String(text) if uuid::Uuid::try_parse(&text).is_ok() => "an id".into(),
        other => other,
    }
}

/// Line by line; `…` in a line stands for anything, and alone on a line for any lines.
fn matches(pattern: &str, text: &str) -> bool {
    let (wanted, have): (Vec<&str>, Vec<&str>) = (pattern.lines().collect(), text.lines().collect());
    fn lines(wanted: &[&str], have: &[&str]) -> bool {
        match (wanted, have) {
            ([], []) => true,
            (["…", rest @ ..], _) => (0..=have.len()).any(|skip| lines(rest, &have[skip..])),
            ([want, rest @ ..], [line, more @ ..]) => fits(want.trim_end(), line.trim_end()) && lines(rest, more),
            _ => false,
        }
    }
    lines(&wanted, &have)
}

fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut last = "";
    let mut any = false;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        (last, any) = (part, true);
    }
    if any { last.is_empty() || rest.is_empty() || text.ends_with(last) } else { rest.is_empty() }
}
