//! A folder with a configuration, a gateway process that can be killed, platforms that repeat, and a look into the books.

use std::{
    fs::{self, File},
    process::{Child, Command, Stdio},
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use payonce::time::Micros;
use payonce_sim::{
    Alipay, Notification, Platform, Wechat,
    auditor::{self, EffectRow, EffectState, Fact, FlowRow, OrderRow},
    courier::{Campaign, Courier, Plan},
    receiver::Receiver,
    text::digits_of,
};
use rand::{SeedableRng, rngs::StdRng};
use serde_json::json;
use tokio::{net::TcpStream, sync::Semaphore, task::JoinHandle};

use crate::databases::{Connection, Database, Kind, free_port};

const TOKEN: &str = "admin-token-of-the-crash-tests";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8G";
const PATIENCE: Duration = Duration::from_secs(30);
const PIECES: i64 = 100;

static WECHAT: LazyLock<Wechat> = LazyLock::new(|| Wechat::new("1900000001"));
static ALIPAY: LazyLock<Alipay> = LazyLock::new(|| Alipay::new("2021000000000001", "2088000000000001"));

/// Repetitions of a test.
pub(crate) fn rounds(small: u64) -> u64 {
    std::env::var("PAYONCE_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(small)
}

/// A seed that is given or new, another one for each round.
pub(crate) fn seeded(round: u64) -> (u64, StdRng) {
    let given = std::env::var("PAYONCE_TEST_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    let seed = given.map_or_else(|| u64::from(rand::random::<u32>()), |seed| seed + round);
    (seed, StdRng::seed_from_u64(seed))
}

/// Everything around a gateway process.
pub(crate) struct Site {
    dir: tempfile::TempDir,
    pub(crate) database: Database,
    public: u16,
    admin: u16,
    pub(crate) receiver: Arc<Receiver>,
    client: reqwest::Client,
    child: Mutex<Option<Child>>,
    /// Environment variables of the process.
    pub(crate) variables: Vec<(&'static str, &'static str)>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            self.dir.disable_cleanup(true);
            eprintln!("what is left is in {}", self.dir.path().display());
        }
    }
}

async fn shop() -> Arc<Receiver> {
    Arc::new(Receiver::start(Some(SECRET)).await.unwrap())
}

impl Site {
    /// With a database of this kind, tables and a stock; not started.
    pub(crate) async fn new(kind: Kind) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::fresh(kind, dir.path()).await;
        Self::bare(dir, database, shop().await, "").equipped().await
    }

    /// On a database that is not touched yet, with further sections in its configuration.
    pub(crate) async fn on(database: Database, sections: &str) -> Self {
        Self::bare(tempfile::tempdir().unwrap(), database, shop().await, sections)
    }

    /// Makes the tables and a stock.
    pub(crate) async fn equipped(self) -> Self {
        let migrated = self.command("migrate").status().unwrap();
        assert!(migrated.success(), "{}", self.log());
        self.books().await.run("CREATE TABLE stock (sku VARCHAR(64) PRIMARY KEY, n INTEGER NOT NULL)").await;
        self
    }

    /// A further gateway on the same database, with the same shop behind it.
    pub(crate) fn beside(&self) -> Self {
        Self::bare(tempfile::tempdir().unwrap(), self.database.clone(), Arc::clone(&self.receiver), "")
    }

    fn bare(dir: tempfile::TempDir, database: Database, receiver: Arc<Receiver>, sections: &str) -> Self {
        let (public, admin) = (free_port(), free_port());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let (child, variables) = (Mutex::new(None), Vec::new());
        let site = Self { dir, database, public, admin, receiver, client, child, variables };
        fs::write(site.dir.path().join("database-url"), &site.database.url).unwrap();
        fs::write(site.dir.path().join("payonce.toml"), site.config() + sections).unwrap();
        site
    }

    /// The process's own account of itself.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let request = self.client.get(format!("http://127.0.0.1:{}/metrics", self.admin)).bearer_auth(TOKEN);
        let page = request.send().await.unwrap().text().await.unwrap();
        let line = page.lines().find(|line| line.starts_with(name));
        line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    fn config(&self) -> String {
        format!(
            r#"
[server]
public = "127.0.0.1:{}"
admin = "127.0.0.1:{}"
admin_token = "{TOKEN}"

[database]
url_file = "database-url"

[accounts.wechat]
channel = "wechat"
mchid = "{}"
api_v3_key = "{}"
public_key_id = "{}"
public_key = """
{}"""

[accounts.alipay]
channel = "alipay"
app_id = "{}"
seller_id = "{}"
alipay_public_key = "{}"

[[effects]]
on = "order.paid"
name = "stock"
sink = "sql"
statement = "UPDATE stock SET n = n - 1 WHERE sku = :order_no"
expect_rows = 1

[[effects]]
on = "order.paid"
name = "ship"
sink = "shop"

[[effects]]
on = "order.paid"
name = "points"
sink = "shop"

[sinks.shop]
type = "http"
url = "{}"
secret = "{SECRET}"
"#,
            self.public,
            self.admin,
            WECHAT.mchid,
            WECHAT.api_v3_key,
            WECHAT.pub_key_id,
            WECHAT.public_key.public_pem(),
            ALIPAY.app_id,
            ALIPAY.seller_id,
            ALIPAY.key.public_base64(),
            self.receiver.url(),
        )
    }

    pub(crate) fn command(&self, word: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_payonce"));
        let log = File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        command.current_dir(self.dir.path()).arg(word).env_remove("PAYONCE_CONFIG").env_remove("RUST_LOG");
        command.envs(self.variables.iter().copied()).stdout(Stdio::null()).stderr(log);
        command
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Starts the process and waits until it listens.
    pub(crate) async fn start(&mut self) {
        *self.child.lock().unwrap() = Some(self.command("serve").spawn().unwrap());
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.public)).await.is_err() {
            let ended = self.child.lock().unwrap().as_mut().and_then(|child| child.try_wait().unwrap());
            assert!(ended.is_none() && Instant::now() < until, "it did not start: {ended:?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// `kill -9`, without waiting for the end.
    pub(crate) fn kill_now(&self) {
        if let Some(child) = self.child.lock().unwrap().as_mut() {
            child.kill().unwrap();
        }
    }

    /// `kill -9`, and it is gone.
    pub(crate) fn kill(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// SIGTERM, and it ends by itself: its exit code and all log lines.
    pub(crate) async fn stop(&self) -> (Option<i32>, String) {
        let mut child = self.child.lock().unwrap().take().unwrap();
        assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(ended) = child.try_wait().unwrap() {
                return (ended.code(), self.log());
            }
            assert!(Instant::now() < until, "it did not stop\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Where callbacks arrive.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.public)
    }

    pub(crate) fn url(&self, platform: Platform) -> String {
        let account = if platform == Platform::Wechat { "wechat" } else { "alipay" };
        format!("http://{}/notify/{account}", self.address())
    }

    pub(crate) async fn register(&self, order_no: &str) {
        self.stock(order_no).await;
        assert_eq!(self.try_register(order_no).await, 201, "{}", self.log());
    }

    pub(crate) async fn stock(&self, order_no: &str) {
        self.stock_by(&mut self.database.connect().await, order_no).await;
    }

    pub(crate) async fn stock_by(&self, connection: &mut Connection, order_no: &str) {
        connection.run(&format!("INSERT INTO stock VALUES ('{order_no}', {PIECES})")).await;
    }

    /// The answer's status.
    pub(crate) async fn try_register(&self, order_no: &str) -> u16 {
        let request = self.client.post(format!("http://127.0.0.1:{}/api/orders", self.admin)).bearer_auth(TOKEN);
        let answer = request.json(&json!({"order_no": order_no, "amount": 100})).send().await.unwrap();
        answer.status().as_u16()
    }

    pub(crate) fn paid(&self, platform: Platform, order_no: &str) -> Arc<dyn Notification> {
        let trade_no = format!("4200{}", digits_of(order_no, 24));
        match platform {
            Platform::Wechat => Arc::new(WECHAT.notify_payment(&WECHAT.payment(order_no, &trade_no, 100))),
            Platform::Alipay => Arc::new(ALIPAY.notify(ALIPAY.payment(order_no, &trade_no, "1.00"))),
        }
    }

    /// Waits until nothing is owed any more, and a little longer. A delivery takes milliseconds here, so a lease that is
    /// some seconds old has no holder any more, and need not be waited for.
    pub(crate) async fn settle(&self) {
        let until = Instant::now() + PATIENCE;
        let mut books = self.books().await;
        while books.count("SELECT count(*) FROM payonce_effect WHERE state <> 'done'").await > 0 {
            assert!(Instant::now() < until, "effects are still owed\n{}", self.log());
            books.forsaken_leases_end().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    pub(crate) async fn books(&self) -> Books {
        Books(self.database.connect().await)
    }

    /// What the auditor finds, who knows what happened and what of it was acknowledged.
    pub(crate) async fn audit<T: AsRef<str>>(
        &self,
        happened: &[(Platform, T)],
        acknowledged: &[(Platform, T)],
    ) -> Vec<String> {
        let fact = |(platform, order_no): &(Platform, T)| {
            let channel = if *platform == Platform::Wechat { "WXPAY" } else { "ALIPAY" };
            let order_no = order_no.as_ref();
            Fact {
                key: format!("{channel}:{order_no}:PAY"),
                kind: auditor::Kind::Payment,
                order_no: order_no.to_owned(),
                amount: 100,
                acknowledged: acknowledged.iter().any(|(_, told)| told.as_ref() == order_no),
            }
        };
        let facts: Vec<Fact> = happened.iter().map(fact).collect();
        let counts = self.receiver.counts();
        let mut books = self.books().await.whole().await;
        books.received = self.receiver.bodies_by_id();
        let mut found: Vec<String> = auditor::audit(&facts, &books).iter().map(ToString::to_string).collect();
        if (counts.badly_signed, counts.bodies_differ) != (0, 0) {
            found.push(format!("{counts:?}"));
        }
        found
    }
}

/// What the database says about one order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Order {
    keys: i64,
    flow: i64,
    status: String,
    effects_done: i64,
    effects: i64,
    stock_taken: i64,
}

/// A connection beside the gateway's.
pub(crate) struct Books(pub(crate) Connection);

impl Books {
    /// One key, one flow row, PAID, three effects of which each is done, one piece of stock.
    pub(crate) fn once() -> Order {
        Order { keys: 1, flow: 1, status: "PAID".to_owned(), effects_done: 3, effects: 3, stock_taken: 1 }
    }

    pub(crate) async fn run(&mut self, sql: &str) {
        self.0.run(sql).await;
    }

    pub(crate) async fn count(&mut self, sql: &str) -> i64 {
        self.0.count(sql).await
    }

    /// Keys, flow rows and effects.
    pub(crate) async fn rows_of(&mut self, order_no: &str) -> (i64, i64, i64) {
        let of = |table: &str| format!("SELECT count(*) FROM payonce_{table} WHERE order_no = '{order_no}'");
        (self.count(&of("idempotency")).await, self.count(&of("order_flow")).await, self.count(&of("effect")).await)
    }

    pub(crate) async fn of(&mut self, order_no: &str) -> Order {
        let (keys, flow, effects) = self.rows_of(order_no).await;
        let done = format!("SELECT count(*) FROM payonce_effect WHERE order_no = '{order_no}' AND state = 'done'");
        let status = format!("SELECT status FROM payonce_order WHERE order_no = '{order_no}'");
        let left = format!("SELECT n FROM stock WHERE sku = '{order_no}'");
        Order {
            keys,
            flow,
            status: self.0.text(&status).await.unwrap(),
            effects_done: self.count(&done).await,
            effects,
            stock_taken: PIECES - self.count(&left).await,
        }
    }

    pub(crate) async fn leased(&mut self) -> i64 {
        self.count("SELECT count(*) FROM payonce_effect WHERE state = 'leased'").await
    }

    /// A lease lasts a minute. Instead of waiting for it while the gateway is down, it is moved into the past.
    pub(crate) async fn a_minute_passes(&mut self) -> u64 {
        self.0.affected("UPDATE payonce_effect SET lease_until = lease_until - 60000000 WHERE state = 'leased'").await
    }

    async fn forsaken_leases_end(&mut self) {
        let young = Micros::now().0 + 55_000_000;
        let sql = "UPDATE payonce_effect SET lease_until = lease_until - 60000000 WHERE state = 'leased'";
        self.run(&format!("{sql} AND lease_until < {young}")).await;
    }

    async fn whole(&mut self) -> auditor::Books {
        let orders = "SELECT order_no, amount, paid, refunded, unapplied, paid_at FROM payonce_order";
        let flow = "SELECT idem_key, order_no, amount FROM payonce_order_flow";
        let effects = "SELECT effect_key, order_no, name, state, sink FROM payonce_effect";
        let mut books = auditor::Books {
            owed_when_paid: ["stock", "ship", "points"].map(str::to_owned).into(),
            delivered_all: true,
            ..auditor::Books::default()
        };
        let number = |cell: &Option<String>| cell.as_ref().unwrap().parse::<i64>().unwrap();
        let text = |cell: &Option<String>| cell.clone().unwrap();
        for row in self.texts(orders).await {
            books.orders.push(OrderRow {
                order_no: text(&row[0]),
                amount: number(&row[1]),
                paid: number(&row[2]),
                refunded: number(&row[3]),
                unapplied: number(&row[4]),
                was_paid: row[5].is_some(),
            });
        }
        for row in self.texts(flow).await {
            let (key, order_no, amount) = (text(&row[0]), text(&row[1]), number(&row[2]));
            books.flow.push(FlowRow { key, kind: auditor::Kind::Payment, order_no, amount });
        }
        for row in self.texts(effects).await {
            let state = if text(&row[3]) == "done" { EffectState::Done } else { EffectState::Open };
            let (key, order_no, name, to_receiver) =
                (text(&row[0]), text(&row[1]), text(&row[2]), text(&row[4]) == "shop");
            books.effects.push(EffectRow { key, order_no, name, state, to_receiver });
        }
        books
    }

    /// Rows of a plain SELECT, each column as a text.
    async fn texts(&mut self, sql: &str) -> Vec<Vec<Option<String>>> {
        let (columns, table) = sql.strip_prefix("SELECT ").unwrap().split_once(" FROM ").unwrap();
        let columns: Vec<String> = columns.split(", ").map(|column| self.0.as_text(column)).collect();
        self.0.rows(&format!("SELECT {} FROM {table}", columns.join(", "))).await
    }
}

/// Platforms that send until they are content, in their own gaps but faster.
pub(crate) struct Storm {
    seed: u64,
    acknowledged: Arc<AtomicUsize>,
}

impl Storm {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, acknowledged: Arc::new(AtomicUsize::new(0)) }
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Waits until so many were acknowledged.
    pub(crate) async fn reached(&self, count: usize) {
        let until = Instant::now() + PATIENCE;
        while self.acknowledged() < count {
            assert!(Instant::now() < until, "only {} acknowledged", self.acknowledged());
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }

    /// Delivers one callback so many times, at most `at_once` at a time, each until it is acknowledged.
    pub(crate) fn begin(
        &self,
        url: String,
        event: Arc<dyn Notification>,
        times: usize,
        at_once: usize,
    ) -> JoinHandle<Vec<Campaign>> {
        self.begin_at([url].into(), event, times, at_once)
    }

    /// The same to several gateways in turn.
    pub(crate) fn begin_at(
        &self,
        urls: Arc<[String]>,
        event: Arc<dyn Notification>,
        times: usize,
        at_once: usize,
    ) -> JoinHandle<Vec<Campaign>> {
        // First gaps of 50 ms at WeChat Pay (15 s) and 100 ms at Alipay (4 min).
        let speed = if event.platform() == Platform::Wechat { 300 } else { 2400 };
        let (seed, acknowledged) = (self.seed, Arc::clone(&self.acknowledged));
        tokio::spawn(async move {
            let room = Arc::new(Semaphore::new(at_once));
            let mut campaigns = tokio::task::JoinSet::new();
            for copy in 0..times {
                let plan = Plan { seed: seed.wrapping_add(copy as u64), ..Plan::default() };
                let (room, urls, event) = (Arc::clone(&room), Arc::clone(&urls), Arc::clone(&event));
                let acknowledged = Arc::clone(&acknowledged);
                campaigns.spawn(async move {
                    let _room = room.acquire_owned().await.unwrap();
                    let gaps = event.platform().gaps();
                    let campaign = Courier.until_acknowledged(&urls, &*event, gaps, speed, plan, |_| {}).await;
                    acknowledged.fetch_add(usize::from(campaign.acknowledged), Ordering::SeqCst);
                    campaign
                });
            }
            campaigns.join_all().await
        })
    }
}
