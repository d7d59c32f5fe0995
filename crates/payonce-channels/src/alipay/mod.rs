//! Alipay, mainland China open platform (支付宝开放平台): classic notifications and query answers.
//!
//! Here: the account's settings, checked once, and the way of one message through the files beside. `form`
//! and `node` are the two splitters of bytes, of a notification and of an answer. Not here: signing
//! requests (the server), the old partner gateway (mapi), Antom and other overseas products.

mod answer;
mod form;
#[cfg(test)]
mod fuzz;
mod keys;
mod node;
mod payload;
mod reply;
mod verify;

use payonce::{
    channel::{Answer, Belief, Callback, Channel, Rejection, Reply},
    ids::{AccountName, Merchant},
    outcome::Verdict,
    time::Micros,
};

use crate::{
    config::{ConfigError, check_number},
    keys::PublicKey,
};

/// The channel's word in keys.
pub const NAME: &str = "ALIPAY";

/// How Alipay signs for this account. A setting and never the message's choice: the signature of a classic
/// notification does not cover `sign_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// `RSA2`: SHA-256, at least 2048 bits.
    #[default]
    Rsa2,
    /// `RSA`: SHA-1, for apps from before 2018 only.
    Rsa,
}

impl Algorithm {
    /// As `sign_type` says it (opendocs.alipay.com/common/02kf5q).
    pub const fn sign_type(self) -> &'static str {
        match self {
            Self::Rsa2 => "RSA2",
            Self::Rsa => "RSA",
        }
    }
}

/// The settings of one account.
#[derive(Debug)]
pub struct Config {
    /// Its name.
    pub account: AccountName,
    /// The apps whose notifications it takes; at least one.
    pub app_ids: Vec<String>,
    /// The payee's account number (PID), `2088…`.
    pub seller_id: String,
    /// The Alipay public keys (支付宝公钥) or certificates: the current one, and another around a change.
    pub keys: Vec<PublicKey>,
    /// What Alipay signs with.
    pub algorithm: Algorithm,
}

/// One account at Alipay.
#[derive(Debug)]
pub struct Alipay {
    account: AccountName,
    merchant: Merchant,
    app_ids: Vec<String>,
    seller_id: String,
    trusted: keys::TrustedKeys,
}

impl Alipay {
    /// Checks the settings.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        check_number("seller_id", &config.seller_id)?;
        if config.app_ids.is_empty() {
            return Err(ConfigError::new(
                "app_ids",
                "none given: a notification for any other app is signed by Alipay as well, so say which are yours",
            ));
        }
        for app_id in &config.app_ids {
            check_number("app_ids", app_id)?;
        }
        let merchant =
            Merchant::of(NAME, &config.seller_id).map_err(|error| ConfigError::new("seller_id", error.to_string()))?;
        Ok(Self {
            account: config.account,
            merchant,
            app_ids: config.app_ids,
            seller_id: config.seller_id,
            trusted: keys::TrustedKeys::new(config.keys, config.algorithm)?,
        })
    }

    fn owner(&self) -> payload::Owner<'_> {
        payload::Owner {
            account: &self.account,
            merchant: &self.merchant,
            app_ids: &self.app_ids,
            seller_id: &self.seller_id,
        }
    }
}

impl Channel for Alipay {
    fn name(&self) -> &'static str {
        NAME
    }

    fn merchant(&self) -> &Merchant {
        &self.merchant
    }

    /// Classic notifications carry no time that could be checked and no nonce: protection against replay is
    /// the key of the fact. So `now` has no part in it.
    fn believe(&self, callback: &Callback, _now: Micros) -> Result<Belief, Rejection> {
        let verified = verify::verify(&callback.body, &self.trusted)?;
        let reading =
            payload::read(&verified, &self.owner()).map_err(|rejection| rejection.verified_by(verified.key_id()))?;
        Ok(verified.belief(reading))
    }

    fn believe_answer(&self, answer: &Answer, _now: Micros) -> Result<Belief, Rejection> {
        answer::believe(answer, &self.trusted, &self.owner())
    }

    fn reply(&self, verdict: &Verdict) -> Reply {
        reply::spell(verdict)
    }
}
