//! WeChat Pay V3 (微信支付 APIv3): direct merchants, service providers, e-commerce.
//!
//! Here: the account's settings, checked once, and the way of one message through the files beside. Not
//! here: downloading certificates or asking for orders (the server), API v2 (MD5, XML).

mod decrypt;
#[cfg(test)]
mod fuzz;
mod keys;
mod payload;
mod reply;
mod verify;

use std::{fmt, time::Duration};

use payonce::{
    channel::{Answer, Bearing, Belief, Callback, Channel, Rejection, Reply},
    ids::{AccountName, Merchant},
    notice::Source,
    outcome::Verdict,
    time::Micros,
};
use zeroize::Zeroize;

use crate::{
    config::{ConfigError, check_number},
    keys::PublicKey,
};

/// The channel's word in keys.
pub const NAME: &str = "WXPAY";

/// The window that the documentation advises for `Wechatpay-Timestamp`
/// (pay.weixin.qq.com/doc/v3/merchant/4013053420, 2.1).
pub const WINDOW: Duration = Duration::from_secs(300);

/// The settings of one account.
pub struct Config {
    /// Its name.
    pub account: AccountName,
    /// Its merchant number; of a service provider or platform, `sp_mchid`.
    pub mchid: String,
    /// Whether it is a service provider (服务商) or an e-commerce platform (收付通).
    pub partner: bool,
    /// The apps whose payments it takes (`appid`, `sp_appid`); empty: any.
    pub app_ids: Vec<String>,
    /// The API v3 key, and the one before it as long as late messages may come. Each exactly 32 bytes.
    pub api_v3_keys: Vec<String>,
    /// What the platform signs with: certificate serial or `PUB_KEY_ID_…`, and the key. `None`: the serial
    /// of the certificate itself.
    pub keys: Vec<(Option<String>, PublicKey)>,
    /// How far `Wechatpay-Timestamp` may be from the clock, in both directions; usually [`WINDOW`].
    pub window: Duration,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("wechat::Config")
            .field("account", &self.account)
            .field("mchid", &self.mchid)
            .field("partner", &self.partner)
            .field("app_ids", &self.app_ids)
            .field("api_v3_keys", &format_args!("{} keys, not shown", self.api_v3_keys.len()))
            .field("keys", &self.keys)
            .field("window", &self.window)
            .finish()
    }
}

/// One account at WeChat Pay.
pub struct Wechat {
    account: AccountName,
    merchant: Merchant,
    mchid: String,
    partner: bool,
    app_ids: Vec<String>,
    cipher_keys: decrypt::CipherKeys,
    trusted: keys::TrustedKeys,
    window: Duration,
}

impl Wechat {
    /// Checks the settings. The API v3 keys are wiped from memory here, whatever comes of it; copies that
    /// the caller made are the caller's.
    pub fn new(mut config: Config) -> Result<Self, ConfigError> {
        let built = Self::build(&mut config);
        config.api_v3_keys.zeroize();
        built
    }

    fn build(config: &mut Config) -> Result<Self, ConfigError> {
        check_number("mchid", &config.mchid)?;
        for app_id in &config.app_ids {
            check_number("app_ids", app_id)?;
        }
        if config.window.is_zero() {
            return Err(ConfigError::new("window", "is zero, so that every message would be too old; use 300 s"));
        }
        let merchant =
            Merchant::of(NAME, &config.mchid).map_err(|error| ConfigError::new("mchid", error.to_string()))?;
        Ok(Self {
            account: config.account.clone(),
            merchant,
            mchid: std::mem::take(&mut config.mchid),
            partner: config.partner,
            app_ids: std::mem::take(&mut config.app_ids),
            cipher_keys: decrypt::CipherKeys::new(&config.api_v3_keys)?,
            trusted: keys::TrustedKeys::new(std::mem::take(&mut config.keys))?,
            window: config.window,
        })
    }

    fn reader(&self, source: Source) -> payload::Reader<'_> {
        payload::Reader {
            account: &self.account,
            merchant: &self.merchant,
            mchid: &self.mchid,
            partner: self.partner,
            app_ids: &self.app_ids,
            source,
        }
    }
}

impl fmt::Debug for Wechat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wechat")
            .field("account", &self.account)
            .field("merchant", &self.merchant)
            .field("partner", &self.partner)
            .field("app_ids", &self.app_ids)
            .field("trusted", &self.trusted)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

impl Channel for Wechat {
    fn name(&self) -> &'static str {
        NAME
    }

    fn merchant(&self) -> &Merchant {
        &self.merchant
    }

    fn believe(&self, callback: &Callback, now: Micros) -> Result<Belief, Rejection> {
        let verified = verify::verify(&callback.headers, &callback.body, &self.trusted, self.window, now)?;
        let signed = |rejection: Rejection| rejection.verified_by(verified.key_id());
        let resource = decrypt::open(&verified, &self.cipher_keys).map_err(signed)?;
        let words = payload::Words {
            event_type: resource.event_type.as_deref(),
            original_type: resource.original_type.as_deref(),
        };
        let reading = self.reader(Source::Callback).read(&resource.plaintext, words).map_err(signed)?;
        Ok(verified.belief(reading))
    }

    fn believe_answer(&self, answer: &Answer, now: Micros) -> Result<Belief, Rejection> {
        // The platform signs success only; what an error says is worth a log line and no decision (facts 6.2).
        if !(200..300).contains(&answer.status) {
            let bearing = Bearing::NotFinal(payload::error_word(answer).into());
            return Ok(Belief { notices: Vec::new(), bearing, key_id: String::new(), rule: "unsigned" });
        }
        let verified = verify::verify(&answer.headers, &answer.body, &self.trusted, self.window, now)?;
        if answer.body.is_empty() {
            let bearing = Bearing::NotFinal(format!("http {}", answer.status).into());
            return Ok(verified.belief((Vec::new(), bearing)));
        }
        let reading = self
            .reader(Source::Query)
            .read(&answer.body, payload::Words::default())
            .map_err(|rejection| rejection.verified_by(verified.key_id()))?;
        Ok(verified.belief(reading))
    }

    fn reply(&self, verdict: &Verdict) -> Reply {
        reply::spell(verdict)
    }
}
