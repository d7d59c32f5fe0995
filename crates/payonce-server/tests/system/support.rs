//! A gateway with everything around it: two platforms, a shop's service, a file, and a look into the books.

use std::{
    collections::HashMap,
    io::Write,
    sync::{
        Arc, LazyLock, Mutex, Once,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use payonce::{
    apply::{Batch, Committed},
    batcher::BatcherOptions,
    channel::{Answer, Belief, Callback, Channel, Rejection, Reply},
    ids::{AccountName, Merchant, OrderNo, Shop},
    key::EffectKey,
    outcome::Verdict,
    register::{Refused, Registered, Registration},
    rules::{EffectRule, Event, Rules},
    sink::Sink,
    statement::Statement,
    store::{Counts, Effect, EffectFilter, Finished, Lease, OrderView, Store},
    time::Micros,
    worker::WorkerOptions,
};
use payonce_channels::{alipay, keys::PublicKey, wechat};
use payonce_server::{
    gateway::{self, Account, Limits, Running, Settings},
    sink::{WebhookConfig, WebhookSink},
};
use payonce_sim::{Request, Response, courier::Courier, receiver::Receiver, text::now_unix};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub(crate) use crate::databases::Kind;
use crate::databases::{Connection, Database};

pub(crate) const TOKEN: &str = "admin-token-of-the-tests-5fd1";
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8G";
/// What a platform's patience is set to where a test does not wait for it to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// One merchant at each platform; making RSA keys takes time, so all tests share them.
pub(crate) static WECHAT: LazyLock<payonce_sim::Wechat> = LazyLock::new(|| payonce_sim::Wechat::new("1900000001"));
pub(crate) static ALIPAY: LazyLock<payonce_sim::Alipay> =
    LazyLock::new(|| payonce_sim::Alipay::new("2021000000000001", "2088000000000001"));

/// Rounds of a race.
pub(crate) fn rounds(small: u32) -> u32 {
    std::env::var("PAYONCE_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(small)
}

/// A number that no other test uses.
pub(crate) fn fresh(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{prefix}{:06}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// What may differ from the usual gateway.
pub(crate) struct Plan {
    pub(crate) database: Kind,
    pub(crate) limits: Limits,
    pub(crate) batcher: BatcherOptions,
    pub(crate) worker: WorkerOptions,
    pub(crate) rules: Rules,
    pub(crate) trouble: Option<Arc<Trouble>>,
    pub(crate) sinks: Vec<(&'static str, Arc<dyn Sink>)>,
    pub(crate) clock: fn() -> Micros,
    /// Where the sink `shop` goes, if not to the receiver.
    pub(crate) shop_url: Option<String>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            database: Kind::default(),
            limits: Limits::default(),
            batcher: BatcherOptions::default(),
            worker: WorkerOptions { poll: Duration::from_millis(50), ..WorkerOptions::default() },
            rules: Rules {
                effects: vec![
                    rule(Event::OrderPaid, "ship"),
                    rule(Event::OrderPaid, "points"),
                    rule(Event::PaymentMismatched, "alert"),
                ],
                ..Rules::default()
            },
            trouble: None,
            sinks: Vec::new(),
            clock: Micros::now,
            shop_url: None,
        }
    }
}

/// An effect that goes to the shop's service.
pub(crate) fn rule(on: Event, name: &str) -> EffectRule {
    EffectRule {
        on,
        when_kind: None,
        name: name.to_owned(),
        sink: "shop".to_owned(),
        after: None,
        delay: Duration::ZERO,
        retry: EffectRule::RETRY.to_vec(),
        statement: None,
    }
}

/// A gateway and what is around it.
pub(crate) struct House {
    pub(crate) running: Running,
    pub(crate) receiver: Receiver,
    pub(crate) client: reqwest::Client,
    database: Database,
    _dir: TempDir,
}

impl House {
    pub(crate) async fn start() -> Self {
        Self::with(Plan::default()).await
    }

    pub(crate) async fn on(database: Kind) -> Self {
        Self::with(Plan { database, ..Plan::default() }).await
    }

    pub(crate) async fn with(plan: Plan) -> Self {
        capture_logs();
        let dir = tempfile::tempdir().unwrap();
        let database = Database::fresh(plan.database, dir.path()).await;
        let receiver = Receiver::start(Some(SECRET)).await.unwrap();
        let running = start_on(&database, &receiver.url(), plan).await;
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { running, receiver, client, database, _dir: dir }
    }

    /// Shuts down, which must drain, and starts again on the same database.
    pub(crate) async fn restart(self, plan: Plan) -> Self {
        let Self { running, receiver, client, database, _dir } = self;
        running.shutdown().await.unwrap();
        let running = start_on(&database, &receiver.url(), plan).await;
        Self { running, receiver, client, database, _dir }
    }

    pub(crate) fn notify_url(&self, account: &str) -> String {
        format!("http://{}/notify/{account}", self.running.public)
    }

    /// Delivers one callback and gives its answer.
    pub(crate) async fn deliver(&self, account: &str, request: &Request) -> Response {
        Courier.deliver(&self.notify_url(account), request, PATIENCE).await.outcome.unwrap()
    }

    /// Sends raw bytes to the public listener and reads until it closes (they should say `Connection: close`).
    pub(crate) async fn raw(&self, bytes: &[u8]) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.running.public).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        split_answer(&answer)
    }

    /// Asks the admin API.
    pub(crate) async fn api(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        self.api_text(method, path, body.map(|body| body.to_string())).await
    }

    pub(crate) async fn api_text(&self, method: &str, path: &str, body: Option<String>) -> (u16, Value) {
        let url = format!("http://{}{path}", self.running.admin);
        let mut request = self.client.request(method.parse().unwrap(), url).bearer_auth(TOKEN);
        if let Some(body) = body {
            request = request.body(body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Registers an order of this many fen.
    pub(crate) async fn order(&self, order_no: &str, fen: i64) -> Value {
        let (status, order) = self.api("POST", "/api/orders", Some(json!({"order_no": order_no, "amount": fen}))).await;
        assert_eq!(status, 201, "{order}");
        order
    }

    pub(crate) async fn show(&self, order_no: &str) -> Value {
        let (status, order) = self.api("GET", &format!("/api/orders/{order_no}"), None).await;
        assert_eq!(status, 200, "{order}");
        order
    }

    pub(crate) async fn books(&self) -> Books {
        Books(self.database.connect().await)
    }

    /// The value of a metric's line that holds all these texts; 0 if there is none.
    pub(crate) async fn metric(&self, parts: &[&str]) -> f64 {
        let (status, page) = self.api("GET", "/metrics", None).await;
        assert_eq!(status, 200);
        let page = page.as_str().unwrap().to_owned();
        let line = page.lines().find(|line| !line.starts_with('#') && parts.iter().all(|part| line.contains(part)));
        line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    /// Waits until the shop's service has taken so many different effects, and a little longer.
    pub(crate) async fn effects_taken(&self, distinct: usize) {
        let counts = self.receiver.wait_for(PATIENCE, |counts| counts.distinct_taken >= distinct).await;
        tokio::time::sleep(Duration::from_millis(120)).await;
        let after = self.receiver.counts();
        assert_eq!(
            (after.distinct_taken, after.bodies_differ, after.badly_signed),
            (distinct, 0, 0),
            "{counts:?} {after:?}"
        );
    }
}

async fn start_on(database: &Database, shop_url: &str, plan: Plan) -> Running {
    let rules = Arc::new(plan.rules);
    let door = database.place().door();
    door.migrate().await.unwrap();
    let database: Arc<dyn Store> = door.open(Arc::clone(&rules)).await.unwrap();
    let store: Arc<dyn Store> = match plan.trouble {
        Some(trouble) => Arc::new(Troubled { inner: database, trouble }),
        None => database,
    };
    let shop = WebhookSink::new(WebhookConfig {
        url: plan.shop_url.unwrap_or_else(|| shop_url.to_owned()),
        secrets: vec![SECRET.to_owned()],
        timeout: Duration::from_secs(2),
        allow_private: true,
    });
    let mut sinks: HashMap<String, Arc<dyn Sink>> = HashMap::from([("shop".to_owned(), Arc::new(shop.unwrap()) as _)]);
    sinks.extend(plan.sinks.into_iter().map(|(name, sink)| (name.to_owned(), sink)));
    let settings = Settings {
        public: ([127, 0, 0, 1], 0).into(),
        admin: ([127, 0, 0, 1], 0).into(),
        admin_token: TOKEN.to_owned(),
        accounts: accounts(),
        store,
        rules,
        sinks,
        limits: plan.limits,
        worker: plan.worker,
        batcher: plan.batcher,
        clock: plan.clock,
    };
    assert!(!format!("{settings:?}").contains(TOKEN));
    gateway::start(settings).await.unwrap()
}

/// `wx-main` and `ali-main` of the shop `default`, and `wx-other` of the shop `other`.
fn accounts() -> Vec<Account> {
    let wechat = |name: &str, mchid: &str| {
        let config = wechat::Config {
            account: AccountName::new(name).unwrap(),
            mchid: mchid.to_owned(),
            partner: false,
            app_ids: vec![WECHAT.appid.clone()],
            api_v3_keys: vec![WECHAT.api_v3_key.clone()],
            keys: vec![
                (Some(WECHAT.pub_key_id.clone()), PublicKey::read(&WECHAT.public_key.public_pem()).unwrap()),
                (Some(WECHAT.serial.clone()), PublicKey::read(&WECHAT.certificate_key.public_pem()).unwrap()),
            ],
            window: wechat::WINDOW,
        };
        wechat::Wechat::new(config).unwrap()
    };
    let alipay = alipay::Alipay::new(alipay::Config {
        account: AccountName::new("ali-main").unwrap(),
        app_ids: vec![ALIPAY.app_id.clone()],
        seller_id: ALIPAY.seller_id.clone(),
        keys: vec![PublicKey::read(&ALIPAY.key.public_base64()).unwrap()],
        algorithm: alipay::Algorithm::Rsa2,
    });
    let account = |name: &str, shop: &str, channel| Account {
        name: AccountName::new(name).unwrap(),
        shop: Shop::new(shop).unwrap(),
        channel,
    };
    vec![
        account("wx-main", "default", Arc::new(wechat("wx-main", &WECHAT.mchid))),
        account("ali-main", "default", Arc::new(alipay.unwrap())),
        account("wx-other", "other", Arc::new(wechat("wx-other", "1900000099"))),
        account("wx-panics", "panics", Arc::new(Panics(wechat("wx-panics", "1900000098")))),
    ]
}

/// A channel with a fault: it panics while it reads.
struct Panics(wechat::Wechat);

impl Channel for Panics {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn merchant(&self) -> &Merchant {
        self.0.merchant()
    }

    fn believe(&self, _: &Callback, _: Micros) -> Result<Belief, Rejection> {
        panic!("a test wants this panic")
    }

    fn believe_answer(&self, _: &Answer, _: Micros) -> Result<Belief, Rejection> {
        panic!("a test wants this panic")
    }

    fn reply(&self, verdict: &Verdict) -> Reply {
        self.0.reply(verdict)
    }
}

/// A WeChat payment callback as it would be sent now.
pub(crate) fn wx_paid(order_no: &str, fen: i64) -> payonce_sim::wechat::Event {
    WECHAT.notify_payment(&WECHAT.payment(order_no, &wx_trade(order_no), fen))
}

pub(crate) fn wx_trade(order_no: &str) -> String {
    format!("4200{}", payonce_sim::text::digits_of(order_no, 24))
}

/// The same at Alipay.
pub(crate) fn ali_paid(order_no: &str, yuan: &str) -> payonce_sim::alipay::Event {
    ALIPAY.notify(ALIPAY.payment(order_no, &ali_trade(order_no), yuan))
}

pub(crate) fn ali_trade(order_no: &str) -> String {
    format!("2026{}", payonce_sim::text::digits_of(order_no, 24))
}

pub(crate) fn send_wx(event: &payonce_sim::wechat::Event) -> Request {
    event.send(now_unix(), event.disorder)
}

pub(crate) fn send_ali(event: &payonce_sim::alipay::Event) -> Request {
    event.send(now_unix())
}

/// The platform's own judgement, and that the answer is in its failing form if it is not content.
#[track_caller]
pub(crate) fn wx_acknowledged(answer: &Response) {
    assert_eq!((answer.status, answer.body.as_slice()), (204, b"".as_slice()), "{answer:?}");
    assert_eq!(answer.header("content-type"), None);
}

#[track_caller]
pub(crate) fn wx_refused(answer: &Response, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["code"], "FAIL", "{body}");
    assert!(body["message"].is_string(), "{body}");
}

#[track_caller]
pub(crate) fn ali_acknowledged(answer: &Response) {
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"success".as_slice()), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("text/plain"));
}

#[track_caller]
pub(crate) fn ali_refused(answer: &Response, status: u16) {
    assert_eq!((answer.status, answer.body.as_slice()), (status, b"fail".as_slice()), "{answer:?}");
}

/// Status, head and body of a whole answer.
pub(crate) fn split_answer(answer: &[u8]) -> (u16, String, Vec<u8>) {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return (0, String::from_utf8_lossy(answer).into_owned(), Vec::new());
    };
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (status, head, answer[end + 4..].to_vec())
}

/// A look into the books by a second connection.
pub(crate) struct Books(pub(crate) Connection);

impl Books {
    /// One number.
    pub(crate) async fn count(&mut self, sql: &str) -> i64 {
        self.0.count(sql).await
    }

    /// One text, if there is a row.
    pub(crate) async fn text(&mut self, sql: &str) -> Option<String> {
        self.0.text(sql).await
    }

    pub(crate) async fn run(&mut self, sql: &str) {
        self.0.run(sql).await;
    }

    /// Rows of a number: (keys, flow rows, effects).
    pub(crate) async fn of(&mut self, order_no: &str) -> (i64, i64, i64) {
        let of = |table: &str| format!("SELECT count(*) FROM payonce_{table} WHERE order_no = '{order_no}'");
        (self.count(&of("idempotency")).await, self.count(&of("order_flow")).await, self.count(&of("effect")).await)
    }

    /// Rows of all tables but the repeat counters: what a refused message must not change.
    pub(crate) async fn rows(&mut self) -> Vec<i64> {
        let mut counts = Vec::new();
        for table in ["order", "attempt", "idempotency", "order_flow", "effect", "quarantine", "callback"] {
            counts.push(self.count(&format!("SELECT count(*) FROM payonce_{table}")).await);
        }
        counts
    }
}

/// What the database is to suffer from.
#[derive(Default)]
pub(crate) struct Trouble {
    /// So many bookings fail before anything is done.
    pub(crate) fail_before: AtomicU32,
    /// So many bookings are done, and then reported as failed: the COMMIT whose answer was lost.
    pub(crate) fail_after: AtomicU32,
    /// Every booking takes this many milliseconds more.
    pub(crate) delay_ms: AtomicU32,
    /// Bookings begun.
    pub(crate) begun: AtomicU32,
    /// So many bookings panic.
    pub(crate) panic: AtomicU32,
}

impl Trouble {
    fn take(counter: &AtomicU32) -> bool {
        counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

/// A database that has trouble.
struct Troubled {
    inner: Arc<dyn Store>,
    trouble: Arc<Trouble>,
}

fn away() -> payonce::Error {
    payonce::Error::from(sqlx::Error::PoolTimedOut)
}

impl Store for Troubled {
    fn book<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Committed, payonce::Error>> {
        Box::pin(async move {
            self.trouble.begun.fetch_add(1, Ordering::SeqCst);
            let delay = u64::from(self.trouble.delay_ms.load(Ordering::SeqCst));
            tokio::time::sleep(Duration::from_millis(delay)).await;
            if Trouble::take(&self.trouble.panic) {
                panic!("a test wants this panic");
            }
            if Trouble::take(&self.trouble.fail_before) {
                return Err(away());
            }
            let booked = self.inner.book(batch).await;
            if Trouble::take(&self.trouble.fail_after) {
                return Err(away());
            }
            booked
        })
    }

    fn register<'a>(
        &'a self,
        registration: &'a Registration,
    ) -> BoxFuture<'a, Result<Result<Registered, Refused>, payonce::Error>> {
        self.inner.register(registration)
    }

    fn sweep(&self, now: Micros) -> BoxFuture<'_, Result<usize, payonce::Error>> {
        self.inner.sweep(now)
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), payonce::Error>> {
        self.inner.flush()
    }

    fn claim<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<Vec<Effect>, payonce::Error>> {
        self.inner.claim(lease)
    }

    fn finish<'a>(
        &'a self,
        token: &'a str,
        finished: &'a [Finished],
        now: Micros,
    ) -> BoxFuture<'a, Result<u64, payonce::Error>> {
        self.inner.finish(token, finished, now)
    }

    fn run_sql<'a>(
        &'a self,
        token: &'a str,
        effect: &'a Effect,
        statement: &'a Statement,
        now: Micros,
    ) -> BoxFuture<'a, Result<bool, payonce::Error>> {
        self.inner.run_sql(token, effect, statement, now)
    }

    fn retry<'a>(&'a self, key: &'a EffectKey, now: Micros) -> BoxFuture<'a, Result<u64, payonce::Error>> {
        self.inner.retry(key, now)
    }

    fn order<'a>(
        &'a self,
        shop: &'a Shop,
        order_no: &'a OrderNo,
    ) -> BoxFuture<'a, Result<Option<OrderView>, payonce::Error>> {
        self.inner.order(shop, order_no)
    }

    fn effects<'a>(&'a self, filter: &'a EffectFilter) -> BoxFuture<'a, Result<Vec<Effect>, payonce::Error>> {
        self.inner.effects(filter)
    }

    fn effect<'a>(&'a self, key: &'a EffectKey) -> BoxFuture<'a, Result<Option<Effect>, payonce::Error>> {
        self.inner.effect(key)
    }

    fn counts(&self) -> BoxFuture<'_, Result<Counts, payonce::Error>> {
        self.inner.counts()
    }

    fn owed(&self) -> &tokio::sync::Notify {
        self.inner.owed()
    }

    fn engine(&self) -> &'static str {
        self.inner.engine()
    }

    fn writers(&self) -> usize {
        self.inner.writers()
    }
}

/// Everything that any gateway of this process wrote at debug level.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn capture_logs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(|| LogWriter)
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

/// The log so far.
pub(crate) fn log() -> String {
    String::from_utf8_lossy(&LOG.lock().unwrap()).into_owned()
}

/// Lines of the log that hold this text.
pub(crate) fn log_lines(text: &str) -> Vec<String> {
    log().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}
