//! `[accounts.NAME]`: merchant identities and the keys with which their callbacks are believed.
//!
//! Here: the keys of each channel's settings, and building the channel from them once, so that what the
//! channel refuses is found at start. Not here: what can only be suspected about a key (`cli/doctor`).

use std::{fmt, sync::Arc, time::Duration};

use payonce::{
    channel::Channel,
    ids::{AccountName, Merchant, Shop},
};
use payonce_channels::{ConfigError, alipay, keys::PublicKey, wechat};

use super::{
    fault::{Place, Show, quote},
    name_is_good, names_differ,
    secret::Secret,
    section::{Section, Told},
    words,
};

/// One account.
#[derive(Clone, Debug)]
pub struct Account {
    /// Its name, the last part of its notify URL.
    pub name: AccountName,
    /// Whose orders it pays.
    pub shop: Shop,
    /// What its channel needs.
    pub settings: ChannelSettings,
}

/// What a channel needs.
#[derive(Clone, Debug)]
pub enum ChannelSettings {
    /// `channel = "wechat"`.
    Wechat(WechatSettings),
    /// `channel = "alipay"`.
    Alipay(AlipaySettings),
}

/// WeChat Pay V3.
#[derive(Clone, Debug)]
pub struct WechatSettings {
    /// The merchant number; of a service provider, its own.
    pub mchid: String,
    /// `mode = "partner"`.
    pub partner: bool,
    /// The apps whose payments it takes; empty: any.
    pub app_ids: Vec<String>,
    /// The current API v3 key, then the previous one.
    pub api_v3_keys: Vec<Secret>,
    /// What the platform signs with.
    pub keys: Vec<NamedKey>,
    /// How far a message's time may be from the clock.
    pub window: Duration,
}

/// Alipay.
#[derive(Clone, Debug)]
pub struct AlipaySettings {
    /// The apps whose notifications it takes.
    pub app_ids: Vec<String>,
    /// The payee's number (PID).
    pub seller_id: String,
    /// What Alipay signs with.
    pub keys: Vec<NamedKey>,
    /// `sign_type`.
    pub algorithm: alipay::Algorithm,
    /// The app's own keys, with which Alipay never signs: `doctor` compares.
    pub own: Vec<NamedKey>,
    /// The app's own private key.
    pub own_private: Option<Secret>,
}

/// A public key, and where it was given.
#[derive(Clone)]
pub struct NamedKey {
    /// `PUB_KEY_ID_…`, where one belongs to it.
    pub id: Option<String>,
    /// The key.
    pub key: PublicKey,
    /// Its text as given.
    pub text: Secret,
}

impl fmt::Debug for NamedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamedKey").field(&self.id).field(&self.key).finish()
    }
}

impl Account {
    /// The word of its channel in the configuration.
    pub const fn channel_word(&self) -> &'static str {
        match self.settings {
            ChannelSettings::Wechat(_) => "wechat",
            ChannelSettings::Alipay(_) => "alipay",
        }
    }

    /// Its number space.
    pub fn merchant(&self) -> Option<Merchant> {
        match &self.settings {
            ChannelSettings::Wechat(settings) => Merchant::of(wechat::NAME, &settings.mchid).ok(),
            ChannelSettings::Alipay(settings) => Merchant::of(alipay::NAME, &settings.seller_id).ok(),
        }
    }

    /// The reader of its callbacks.
    pub fn channel(&self) -> Result<Arc<dyn Channel>, ConfigError> {
        let account = self.name.clone();
        Ok(match &self.settings {
            ChannelSettings::Wechat(settings) => Arc::new(wechat::Wechat::new(wechat::Config {
                account,
                mchid: settings.mchid.clone(),
                partner: settings.partner,
                app_ids: settings.app_ids.clone(),
                api_v3_keys: settings.api_v3_keys.iter().map(|key| key.expose().to_owned()).collect(),
                keys: settings.keys.iter().map(|key| (key.id.clone(), key.key.clone())).collect(),
                window: settings.window,
            })?),
            ChannelSettings::Alipay(settings) => Arc::new(alipay::Alipay::new(alipay::Config {
                account,
                app_ids: settings.app_ids.clone(),
                seller_id: settings.seller_id.clone(),
                keys: settings.keys.iter().map(|key| key.key.clone()).collect(),
                algorithm: settings.algorithm,
            })?),
        })
    }
}

#[derive(Clone, Copy)]
enum Word {
    Wechat,
    Alipay,
}

/// Reads all accounts; those that cannot be used are left out.
pub(super) fn read(found: Vec<(Told<String>, Section<'_>)>, shops: &[Shop]) -> Vec<Told<Account>> {
    if let Some((_, section)) = found.first() {
        let names: Vec<(&str, &Place)> = found.iter().map(|(name, _)| (name.value.as_str(), &name.place)).collect();
        names_differ(section.report, "account", &names);
    }
    found.into_iter().filter_map(|(name, section)| account(name, section, shops)).collect()
}

fn account(name: Told<String>, mut section: Section<'_>, shops: &[Shop]) -> Option<Told<Account>> {
    let report = section.report;
    let before = report.count();
    let good = name_is_good(report, "account", &name);
    let shop = shop(&mut section, shops);
    let words = [("wechat", Word::Wechat), ("alipay", Word::Alipay)];
    let channel = section.required("channel", "write channel = \"wechat\" or channel = \"alipay\"");
    // Without the channel it is not known which keys belong here, so nothing is said about them.
    let settings = match channel.and_then(|told| section.as_choice("channel", &told, &words))? {
        Word::Wechat => wechat_settings(&mut section).map(ChannelSettings::Wechat),
        Word::Alipay => alipay_settings(&mut section).map(ChannelSettings::Alipay),
    };
    let place = section.place.clone();
    let label = section.label.clone();
    section.finish();
    let (true, Some(shop), Some(settings)) = (good, shop, settings) else { return None };
    let account = Account { name: AccountName::new(name.value).ok()?, shop, settings };
    if report.count() == before
        && let Err(error) = account.channel()
    {
        let what = format!("{label} cannot be used: {error}");
        report.fault(&place, Show::Masked, what, "correct that setting; `payonce doctor` describes every key");
    }
    Some(Told { value: account, place })
}

/// The shop that is named, or the only one there is.
fn shop(section: &mut Section<'_>, shops: &[Shop]) -> Option<Shop> {
    let given = section.text("shop");
    let known: Vec<&str> = if shops.is_empty() { vec!["default"] } else { shops.iter().map(Shop::as_str).collect() };
    let Some(told) = given else {
        if let [only] = known.as_slice() {
            return Shop::new(*only).ok();
        }
        if known.contains(&"default") {
            return Some(Shop::default_shop());
        }
        section.missing("shop", &format!("say whose orders it pays: {}", known.join(", ")));
        return None;
    };
    if known.contains(&told.value.as_str()) {
        return Shop::new(told.value).ok();
    }
    let todo = match words::nearest(&told.value, known.iter().copied()) {
        Some(near) => format!("write shop = \"{near}\""),
        None => format!("write a section [shops.NAME] for it, or one of: {}", known.join(", ")),
    };
    let what = format!("`shop`: there is no shop {}", quote(&told.value));
    section.report.fault(&told.place, Show::Plain, what, todo);
    None
}

fn values(told: Vec<Told<String>>) -> Vec<String> {
    told.into_iter().map(|told| told.value).collect()
}

/// `app_ids`, or `app_id` for one.
fn app_ids(section: &mut Section<'_>) -> Vec<String> {
    let (one, several) = (section.texts("app_id"), section.texts("app_ids"));
    if let (Some(told), false) = (one.first(), several.is_empty()) {
        let todo = "put all of them into `app_ids`";
        section.report.fault(&told.place, Show::Masked, "`app_id` and `app_ids` are both given", todo);
    }
    values(if several.is_empty() { one } else { several })
}

/// Merchant numbers of both platforms are digits. Anything else is another setting in the wrong place.
fn digits(section: &Section<'_>, key: &str, told: Told<String>) -> Option<String> {
    if told.value.len() <= 32 && told.value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(told.value);
    }
    let todo = "copy it from the platform's console: digits only, without blanks";
    section.report.fault(&told.place, Show::Masked, format!("`{key}` is no merchant number"), todo);
    None
}

fn wechat_settings(section: &mut Section<'_>) -> Option<WechatSettings> {
    let mchid = section.required("mchid", "write the merchant number (商户号), for example mchid = \"1900000001\"");
    let mchid = mchid.and_then(|told| digits(section, "mchid", told));
    let partner = section.choice("mode", false, &[("direct", false), ("partner", true)]);
    let app_ids = app_ids(section);
    let current = section.secret("api_v3_key", "api_v3_key_file");
    let previous = section.secret("previous_api_v3_key", "previous_api_v3_key_file");
    if current.is_none() {
        let todo = "set an API v3 key (APIv3密钥) in the merchant platform and name its file: api_v3_key_file = \"secrets/api-v3-key\"";
        missing_unless_faulty(section, "api_v3_key", todo);
    }
    let api_v3_keys: Vec<Secret> =
        [current, previous].into_iter().flatten().filter_map(|told| api_v3_key(section, told)).collect();
    let keys = wechat_keys(section);
    let window = section.optional_integer("window_seconds", 300, 1..=3600);
    let window = window.map_or(wechat::WINDOW, |seconds| Duration::from_secs(seconds.unsigned_abs()));
    Some(WechatSettings { mchid: mchid?, partner, app_ids, api_v3_keys, keys, window })
}

/// Says that a secret is missing, unless its file was named and could not be read, which was said already.
fn missing_unless_faulty(section: &Section<'_>, key: &str, todo: &str) {
    if !section.was_given(key) {
        section.missing(key, todo);
    }
}

fn api_v3_key(section: &Section<'_>, told: Told<Secret>) -> Option<Secret> {
    let bytes = told.value.expose().len();
    if bytes == 32 {
        return Some(told.value);
    }
    let what = format!("`{}` has {bytes} bytes; an API v3 key has exactly 32", told.value.origin);
    let todo =
        "copy it again; it is the text you typed into the merchant platform, neither hexadecimal nor base64 of it";
    section.report.fault(&told.place, Show::Masked, what, todo);
    None
}

fn wechat_keys(section: &mut Section<'_>) -> Vec<NamedKey> {
    let before = section.report.count();
    let mut keys: Vec<NamedKey> = Vec::new();
    for told in section.files("platform_certificate_files") {
        keys.extend(public_key(section, told, None));
    }
    let id = section.text("public_key_id");
    let key = section.secret("public_key", "public_key_file");
    if let Some(id) = &id
        && !id.value.starts_with("PUB_KEY_ID_")
    {
        let todo = "copy the public key's ID (公钥ID) from the merchant platform; it begins with PUB_KEY_ID_. A certificate needs no ID";
        section.report.fault(&id.place, Show::Masked, "`public_key_id` does not begin with PUB_KEY_ID_", todo);
    }
    match (id, key) {
        (Some(id), Some(told)) => keys.extend(public_key(section, told, Some(id.value))),
        (None, Some(told)) => {
            let todo =
                "write the public key's ID (公钥ID) from the merchant platform: public_key_id = \"PUB_KEY_ID_…\"";
            section.report.fault(&told.place, Show::Masked, "a public key is given without `public_key_id`", todo);
        }
        (Some(id), None) if !section.was_given("public_key") => {
            let todo = "download the WeChat Pay public key (微信支付公钥) and name its file: public_key_file = \"secrets/wechat-public-key.pem\"";
            section.report.fault(&id.place, Show::Masked, "`public_key_id` is given without `public_key_file`", todo);
        }
        _ => {}
    }
    if keys.is_empty() && section.report.count() == before {
        let todo = "name the WeChat Pay public key (public_key_id and public_key_file), or platform certificates (platform_certificate_files)";
        section.report.fault(
            &section.place,
            Show::Masked,
            format!("{} has no key to verify callbacks with", section.label),
            todo,
        );
    }
    keys
}

fn public_key(section: &Section<'_>, told: Told<Secret>, id: Option<String>) -> Option<NamedKey> {
    match PublicKey::read(told.value.expose()) {
        Ok(key) => Some(NamedKey { id, key, text: told.value }),
        Err(error) => {
            let file = told.value.file.as_ref().map(|file| format!(" ({})", file.display())).unwrap_or_default();
            let what = format!("`{}`{file}: {error}", told.value.origin);
            let todo = "download the platform's public key or certificate once more and name that file";
            section.report.fault(&told.place, Show::Masked, what, todo);
            None
        }
    }
}

fn alipay_settings(section: &mut Section<'_>) -> Option<AlipaySettings> {
    let report = section.report;
    let app_ids = app_ids(section);
    if app_ids.is_empty() && !section.was_given("app_id") {
        section.missing("app_id", "write the app's number, for example app_id = \"2021000000000001\"");
    }
    let seller_id = section.required("seller_id", "write the payee's number (PID), 16 digits that begin with 2088");
    let seller_id = seller_id.and_then(|told| digits(section, "seller_id", told));
    let sign_types = [("RSA2", alipay::Algorithm::Rsa2), ("RSA", alipay::Algorithm::Rsa)];
    let algorithm = section.choice("sign_type", alipay::Algorithm::Rsa2, &sign_types);
    let before = report.count();
    let mut keys = Vec::new();
    for told in section.secrets("alipay_public_key", "alipay_public_key_file") {
        keys.extend(public_key(section, told, None));
    }
    for told in section.files("alipay_certificate_files") {
        keys.extend(public_key(section, told, None));
    }
    if keys.is_empty() && report.count() == before {
        let todo = "name the Alipay public key (支付宝公钥, not the app's own): alipay_public_key_file = \"secrets/alipay-public-key\"";
        report.fault(
            &section.place,
            Show::Masked,
            format!("{} has no key to verify callbacks with", section.label),
            todo,
        );
    }
    let own = section.secrets("app_public_key", "app_public_key_file");
    let own = own.into_iter().filter_map(|told| public_key(section, told, None)).collect();
    let own_private = section.secret("app_private_key", "app_private_key_file").map(|told| told.value);
    Some(AlipaySettings { app_ids, seller_id: seller_id?, keys, algorithm, own, own_private })
}
