//! What the demo is played on: a temporary folder with a whole configuration, fresh keys, and the user's service.
//!
//! Here: both platforms with their keys, the files that `payonce serve` would read just so, the receiver of the
//! webhooks, and the client of the admin API. Not here: what is played (`play`, `odd`).

use std::{
    fs,
    path::{Path, PathBuf},
};

use payonce_sim::{
    Alipay, Notification, Platform, Response, Wechat,
    courier::{Courier, Delivery},
    keys::RsaKey,
    message::Request,
    receiver::Receiver,
    text::{digits_of, now_unix, yuan},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Result, books};
use crate::{
    cli::{random_bytes, write_private},
    gateway::Running,
};

/// In the order of the table.
pub(crate) const PLATFORMS: [Platform; 2] = [Platform::Wechat, Platform::Alipay];

/// What every order costs: 99 yuan.
pub(super) const FEN: i64 = 9900;

/// The last part of the notify URL.
pub(crate) const fn account(platform: Platform) -> &'static str {
    match platform {
        Platform::Wechat => "wechat",
        Platform::Alipay => "alipay",
    }
}

/// Everything around the gateway.
pub(crate) struct Stage {
    folder: TempDir,
    pub(super) wechat: Wechat,
    pub(super) alipay: Alipay,
    /// Somebody else's key.
    pub(super) stranger: RsaKey,
    pub(super) receiver: Receiver,
    /// Bearer token of the admin API.
    pub(crate) token: String,
}

impl Stage {
    /// Makes the folder and the keys, starts the receiver, writes the configuration.
    pub(crate) async fn set() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("payonce-demo-").tempdir()?;
        let keys = tokio::task::spawn_blocking(|| {
            let wechat = std::thread::spawn(|| Wechat::new("1900000001"));
            let alipay = Alipay::new("2021000000000001", "2088000000000001");
            (wechat.join(), alipay, RsaKey::generate())
        });
        let (wechat, alipay, stranger) = keys.await?;
        let wechat = wechat.map_err(|_| "no keys could be made")?;
        let secret = format!("whsec_{}", base64(&*random_bytes()));
        let receiver = Receiver::start(Some(&secret)).await?;
        let token: String = random_bytes().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let stage = Self { folder, wechat, alipay, stranger, receiver, token };
        stage.write(&secret)?;
        Ok(stage)
    }

    fn write(&self, webhook_secret: &str) -> Result<()> {
        let secrets = self.folder.path().join("secrets");
        fs::create_dir(&secrets)?;
        for (name, text) in [
            ("wechat-api-v3-key", self.wechat.api_v3_key.as_str()),
            ("wechat-public-key.pem", &self.wechat.public_key.public_pem()),
            ("alipay-public-key", &self.alipay.key.public_base64()),
            ("webhook-secret", webhook_secret),
            ("admin-token", &self.token),
        ] {
            write_private(&secrets.join(name), &format!("{text}\n"))?;
        }
        fs::write(self.config_file(), self.config())?;
        Ok(())
    }

    /// A configuration like anybody's.
    fn config(&self) -> String {
        let (wechat, alipay) = (&self.wechat, &self.alipay);
        format!(
            r#"# Written by `payonce demo`.
[server]
public = "127.0.0.1:0"
admin = "127.0.0.1:0"
admin_token_file = "secrets/admin-token"

[database]
url = "sqlite:payonce.db"

[accounts.wechat]
channel = "wechat"
mchid = "{mchid}"
app_ids = ["{appid}"]
api_v3_key_file = "secrets/wechat-api-v3-key"
public_key_id = "{pub_key_id}"
public_key_file = "secrets/wechat-public-key.pem"

[accounts.alipay]
channel = "alipay"
app_id = "{app_id}"
seller_id = "{seller_id}"
alipay_public_key_file = "secrets/alipay-public-key"

# What a paid order owes: a row in the same database, and two webhooks.
[[effects]]
on = "order.paid"
name = "stock"
sink = "sql"
statement = "{statement}"
expect_rows = 1

[[effects]]
on = "order.paid"
name = "ship"
sink = "shop"

[[effects]]
on = "order.paid"
name = "points"
sink = "shop"

[[effects]]
on = "payment.mismatched"
name = "alert"
sink = "shop"

[sinks.shop]
type = "http"
url = "{hook}"
secret_file = "secrets/webhook-secret"
"#,
            mchid = wechat.mchid,
            appid = wechat.appid,
            pub_key_id = wechat.pub_key_id,
            app_id = alipay.app_id,
            seller_id = alipay.seller_id,
            statement = books::TAKE_STOCK,
            hook = self.receiver.url(),
        )
    }

    /// Where everything lies.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves the folder where it is when the stage is dropped.
    pub(crate) fn keep(&mut self) {
        self.folder.disable_cleanup(true);
    }

    /// The configuration.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.folder().join("payonce.toml")
    }

    /// The gateway's database.
    pub(crate) fn database(&self) -> PathBuf {
        self.folder().join("payonce.db")
    }

    /// Log lines of the gateway.
    pub(crate) fn log_file(&self) -> PathBuf {
        self.folder().join("gateway.log")
    }

    /// The race has one of its own.
    pub(super) fn race_database(&self) -> PathBuf {
        self.folder().join("race.db")
    }

    /// The payment of an order of [`FEN`], as the platform will tell it.
    pub(super) fn paid(&self, platform: Platform, order_no: &str) -> std::sync::Arc<dyn Notification> {
        match platform {
            Platform::Wechat => std::sync::Arc::new(self.wechat_paid(order_no, FEN)),
            Platform::Alipay => std::sync::Arc::new(self.alipay_paid(order_no, FEN)),
        }
    }

    pub(super) fn wechat_paid(&self, order_no: &str, fen: i64) -> payonce_sim::wechat::Event {
        self.wechat.notify_payment(&self.wechat.payment(order_no, &trade_no(order_no), fen))
    }

    pub(super) fn alipay_paid(&self, order_no: &str, fen: i64) -> payonce_sim::alipay::Event {
        self.alipay.notify(self.alipay.payment(order_no, &trade_no(order_no), &yuan(fen)))
    }

    /// What the platform answers when somebody asks about that payment.
    pub(super) fn query_answer(&self, platform: Platform, order_no: &str) -> Response {
        match platform {
            Platform::Wechat => {
                self.wechat.answer(&self.wechat.payment(order_no, &trade_no(order_no), FEN), now_unix())
            }
            Platform::Alipay => self.alipay.query_answer(&json!({
                "trade_no": trade_no(order_no),
                "out_trade_no": order_no,
                "trade_status": "TRADE_SUCCESS",
                "total_amount": yuan(FEN),
                "send_pay_date": payonce_sim::text::beijing_plain(now_unix()),
            })),
        }
    }
}

/// The platform's number of an order's payment.
fn trade_no(order_no: &str) -> String {
    format!("4200{}", digits_of(order_no, 24))
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// The shop's own program: registers orders and asks, over the admin API. And the way to the notify URLs.
#[derive(Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    public: String,
    admin: String,
    token: String,
}

impl Client {
    pub(super) fn new(running: &Running, stage: &Stage) -> Result<Self> {
        Ok(Self {
            http: reqwest::Client::builder().no_proxy().build()?,
            public: format!("http://{}", running.public),
            admin: format!("http://{}", running.admin),
            token: stage.token.clone(),
        })
    }

    pub(super) fn notify_url(&self, platform: Platform) -> String {
        format!("{}/notify/{}", self.public, account(platform))
    }

    pub(super) async fn deliver(&self, platform: Platform, request: &Request) -> Delivery {
        Courier.deliver(&self.notify_url(platform), request, platform.deadline()).await
    }

    /// Registers an order of [`FEN`] with one piece of a stock of its own.
    pub(super) async fn register(&self, order_no: &str) -> Result<Value> {
        let order = json!({"order_no": order_no, "amount": FEN, "meta": {"sku": books::sku(order_no)}});
        let request = self.http.post(format!("{}/api/orders", self.admin)).bearer_auth(&self.token).json(&order);
        let answer = request.send().await?.error_for_status()?;
        Ok(answer.json().await?)
    }

    /// Hands in what the platform answered to a query; whether it is settled.
    pub(super) async fn hand_in(&self, platform: Platform, answer: &Response) -> Result<bool> {
        let url = format!("{}/api/accounts/{}/query-answer", self.admin, account(platform));
        let mut request = self.http.post(url).bearer_auth(&self.token).body(answer.body.clone());
        for (name, value) in &answer.headers {
            request = request.header(name, value);
        }
        let told: Value = request.send().await?.error_for_status()?.json().await?;
        Ok(told["acknowledged"] == true)
    }

    /// The gateway's own counters of what became of callbacks: word (`repeated`, `signature` …) to number.
    pub(super) async fn words(&self) -> Result<std::collections::BTreeMap<String, u64>> {
        let request = self.http.get(format!("{}/metrics", self.admin)).bearer_auth(&self.token);
        let page = request.send().await?.error_for_status()?.text().await?;
        let mut words = std::collections::BTreeMap::new();
        for line in page.lines() {
            let label = |name: &str| line.split(&format!("{name}=\"")).nth(1)?.split('"').next();
            let word = if line.starts_with("payonce_probes_total{") {
                Some("probe")
            } else if line.starts_with("payonce_rejections_total{") {
                label("reason")
            } else if line.starts_with("payonce_callbacks_total{") {
                label("outcome")
            } else {
                None
            };
            let count = line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
            if let (Some(word), Some(count)) = (word, count) {
                *words.entry(word.to_owned()).or_default() += count as u64;
            }
        }
        Ok(words)
    }
}
