//! What a verified plaintext says.
//!
//! Here: telling the shapes apart (payment, refund, combined, anything else), whose they are, and turning
//! them into notices; callbacks and query answers alike. Not here: what follows from a notice.
//!
//! The shape decides and not `event_type`, since one event type covers payments of all kinds and, in
//! practice, profit sharing (facts 3.1, 3.7; F020). Fields that only inform are read as any JSON, so that no
//! new type or absence of one can hold up money.

use payonce::{
    channel::{Answer, Bearing, Reason, Rejection},
    ids::{AccountName, Merchant, OutTradeNo, TradeNo},
    money::{Currency, Money},
    notice::{Fact, Notice, Source},
    time::Micros,
};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use crate::{
    text::{self, missing, quote, string},
    times,
};

/// `trade_state` of a payment that arrived (pay.weixin.qq.com/doc/v3/partner/4013080237).
const TRADE_SUCCESS: &str = "SUCCESS";
/// A refund was begun, so the order was paid. Says nothing about the refund itself.
const TRADE_REFUND: &str = "REFUND";
/// Closed, final.
const TRADE_CLOSED: &str = "CLOSED";
/// Not final, or final without money: unpaid, reversed (付款码), password being entered, failed, accepted and
/// not yet deducted, deduction failed (parking).
const TRADE_NOT_PAID: [&str; 6] = ["NOTPAY", "REVOKED", "USERPAYING", "PAYERROR", "ACCEPT", "PAY_FAIL"];

/// `refund_status` in callbacks, `status` in query answers (pay.weixin.qq.com/doc/v3/merchant/4013070388).
const REFUND_SUCCESS: &str = "SUCCESS";
/// Stuck: the card is void or frozen. `SUCCESS` may follow under the same number.
const REFUND_ABNORMAL: &str = "ABNORMAL";
/// Will not happen under this number.
const REFUND_CLOSED: &str = "CLOSED";
/// Under way; queries only.
const REFUND_PROCESSING: &str = "PROCESSING";

/// `original_type` of messages that must read as a payment, and as a refund.
const ORIGINAL_TRANSACTION: &str = "transaction";
const ORIGINAL_REFUND: &str = "refund";

/// Our word for profit-sharing receipts, since their event type is often that of a payment.
const KIND_PROFIT_SHARING: &str = "profitsharing";

/// The envelope's words, for shapes that do not speak for themselves.
#[derive(Clone, Copy, Default)]
pub(super) struct Words<'a> {
    pub(super) event_type: Option<&'a str>,
    pub(super) original_type: Option<&'a str>,
}

/// The account for which a message is read, and through which entrance it came.
pub(super) struct Reader<'a> {
    pub(super) account: &'a AccountName,
    pub(super) merchant: &'a Merchant,
    pub(super) mchid: &'a str,
    pub(super) partner: bool,
    pub(super) app_ids: &'a [String],
    pub(super) source: Source,
}

type Reading = (Vec<Notice>, Bearing);

/// The members by which shapes are told apart and facts identified. A member given twice is an error here,
/// unlike in a map, where the last one would silently win. `amount` and `sub_orders` stay raw until the shape
/// is known: in other kinds of message the same names hold other things (a withdrawal's `amount` is a number).
#[derive(Deserialize, Default)]
#[serde(default)]
struct Plain {
    appid: Option<Value>,
    sp_appid: Option<Value>,
    mchid: Option<Value>,
    sp_mchid: Option<Value>,
    sub_mchid: Option<Value>,
    out_trade_no: Option<Value>,
    transaction_id: Option<Value>,
    trade_state: Option<Value>,
    out_refund_no: Option<Value>,
    refund_id: Option<Value>,
    refund_status: Option<Value>,
    status: Option<Value>,
    combine_out_trade_no: Option<Value>,
    combine_mchid: Option<Value>,
    sub_orders: Option<Box<RawValue>>,
    receiver: Option<Value>,
    amount: Option<Box<RawValue>>,
    success_time: Option<Value>,
    trade_type: Option<Value>,
    bank_type: Option<Value>,
    attach: Option<Value>,
    promotion_detail: Option<Value>,
    refund_account: Option<Value>,
}

/// Direct, partner, combined and refund amounts in one; the names differ (facts 3.2, 3.4, 3.5).
#[derive(Deserialize, Default)]
#[serde(default)]
struct Amount {
    total: Option<Value>,
    total_amount: Option<Value>,
    payer_total: Option<Value>,
    payer_amount: Option<Value>,
    refund: Option<Value>,
    payer_refund: Option<Value>,
    currency: Option<Value>,
}

impl Reader<'_> {
    /// Reads a plaintext or the body of a query answer.
    pub(super) fn read(&self, json: &[u8], words: Words<'_>) -> Result<Reading, Rejection> {
        let plain: Plain = serde_json::from_str(&text::lenient_json(json)).map_err(unreadable)?;
        if plain.combine_out_trade_no.is_some() {
            return self.combined(&plain);
        }
        if plain.receiver.is_some() {
            return Ok((Vec::new(), Bearing::Unsupported(KIND_PROFIT_SHARING.into())));
        }
        if plain.out_refund_no.is_some()
            && (self.refund_state(&plain).is_some() || words.original_type == Some(ORIGINAL_REFUND))
        {
            return self.refund(&plain);
        }
        if plain.trade_state.is_some()
            || words.original_type == Some(ORIGINAL_TRANSACTION)
            || self.source == Source::Query
        {
            return self.payment(&plain);
        }
        let kind = words.event_type.or(words.original_type).map_or_else(|| "unnamed".to_owned(), quote);
        Ok((Vec::new(), Bearing::Unsupported(kind.into())))
    }

    fn payment(&self, plain: &Plain) -> Result<Reading, Rejection> {
        self.check_owner(plain)?;
        self.check_app(plain)?;
        let Some(fact) = self.trade_state(plain)? else {
            return Ok((Vec::new(), Bearing::NotFinal(string(&plain.trade_state).unwrap_or_default().into())));
        };
        Ok((vec![self.trade_notice(plain, fact, Map::new())?], Bearing::Facts))
    }

    /// What the state means: a fact, or nothing yet. A callback is only sent for success; whether a late
    /// copy may show another state is not documented, so nothing but SUCCESS is taken from callbacks (F029).
    fn trade_state(&self, plain: &Plain) -> Result<Option<Fact>, Rejection> {
        let state = string(&plain.trade_state).ok_or_else(|| missing("trade_state"))?;
        match (state, self.source) {
            (TRADE_SUCCESS, _) | (TRADE_REFUND, Source::Query) => Ok(Some(Fact::Payment)),
            (TRADE_CLOSED, Source::Query) if string(&plain.transaction_id).is_none() => Ok(Some(Fact::Closed)),
            (TRADE_REFUND | TRADE_CLOSED, _) => Ok(None),
            (known, _) if TRADE_NOT_PAID.contains(&known) => Ok(None),
            (unknown, _) => Err(Rejection::new(Reason::UnknownState, format!("trade_state: {}", quote(unknown)))),
        }
    }

    /// One envelope for all sub orders. Those of this account are booked; those of other merchants are
    /// theirs to hear about on their own URLs, and refusing the whole message because of them would lose ours.
    /// `combine_appid` is the initiator's, who may be another merchant, so it is not held against `app_ids`.
    fn combined(&self, plain: &Plain) -> Result<Reading, Rejection> {
        let raw = plain.sub_orders.as_ref().ok_or_else(|| missing("sub_orders"))?;
        let orders: Vec<Plain> = serde_json::from_str(raw.get()).map_err(unreadable)?;
        if orders.is_empty() {
            return Err(missing("sub_orders"));
        }
        let ours: Vec<&Plain> = orders.iter().filter(|order| string(&order.mchid) == Some(self.mchid)).collect();
        if ours.is_empty() {
            return Err(foreign(format!("sub_orders: none of {} has mchid {}", orders.len(), self.mchid)));
        }
        let mut notices = Vec::with_capacity(ours.len());
        let mut waiting = None;
        for order in &ours {
            let Some(fact) = self.trade_state(order)? else {
                waiting = string(&order.trade_state);
                continue;
            };
            let mut data = Map::new();
            keep(&mut data, "combine_out_trade_no", &plain.combine_out_trade_no);
            keep(&mut data, "combine_mchid", &plain.combine_mchid);
            data.insert("combine_orders".to_owned(), orders.len().into());
            data.insert("combine_orders_of_others".to_owned(), (orders.len() - ours.len()).into());
            notices.push(self.trade_notice(order, fact, data)?);
        }
        let bearing = match waiting {
            Some(state) if notices.is_empty() => Bearing::NotFinal(state.into()),
            _ => Bearing::Facts,
        };
        Ok((notices, bearing))
    }

    fn refund(&self, plain: &Plain) -> Result<Reading, Rejection> {
        // The answer to a refund query names no merchant; we asked with the account's own number and keys.
        if self.source == Source::Callback || owner(plain).is_some() {
            self.check_owner(plain)?;
        }
        let refund_no = text::number("out_refund_no", string(&plain.out_refund_no).unwrap_or_default())?;
        let state = self.refund_state(plain).ok_or_else(|| missing("refund_status"))?;
        let refund_no: Box<str> = refund_no.into();
        let fact = match state {
            // `full` stays false: the refund's own amount is known, and it is what counts.
            REFUND_SUCCESS => Fact::Refund { refund_no, full: false },
            REFUND_ABNORMAL => Fact::RefundAbnormal { refund_no },
            REFUND_CLOSED => Fact::RefundClosed { refund_no },
            REFUND_PROCESSING => return Ok((Vec::new(), Bearing::NotFinal(state.into()))),
            unknown => {
                return Err(Rejection::new(Reason::UnknownState, format!("refund_status: {}", quote(unknown))));
            }
        };
        let amount = amount(plain)?;
        // A refund that got stuck or was closed moved nothing, so its amount may be absent.
        let money = if state == REFUND_SUCCESS || amount.refund.is_some() {
            Some(money("amount.refund", &amount.refund, &amount)?)
        } else {
            None
        };
        let data = refund_data(plain, &amount, state);
        Ok((vec![self.notice(plain, fact, Some(trade_no(plain)?), money, data)?], Bearing::Facts))
    }

    /// The callback's field and the query's have different names for the same thing (F021).
    fn refund_state<'p>(&self, plain: &'p Plain) -> Option<&'p str> {
        string(&plain.refund_status).or_else(|| match self.source {
            Source::Query if plain.refund_id.is_some() => string(&plain.status),
            _ => None,
        })
    }

    fn trade_notice(&self, plain: &Plain, fact: Fact, mut data: Map<String, Value>) -> Result<Notice, Rejection> {
        if fact == Fact::Closed {
            return self.notice(plain, fact, None, None, data);
        }
        let amount = amount(plain)?;
        payment_data(&mut data, plain, &amount);
        // `total` is what the shop asked for; `payer_total` is smaller by the coupons (F068).
        let total = if amount.total.is_some() { &amount.total } else { &amount.total_amount };
        let money = money("amount.total", total, &amount)?;
        self.notice(plain, fact, Some(trade_no(plain)?), Some(money), data)
    }

    fn notice(
        &self,
        plain: &Plain,
        fact: Fact,
        trade_no: Option<TradeNo>,
        money: Option<Money>,
        channel_data: Map<String, Value>,
    ) -> Result<Notice, Rejection> {
        let number = text::number("out_trade_no", string(&plain.out_trade_no).unwrap_or_default())?;
        let notice = Notice {
            merchant: self.merchant.clone(),
            account: self.account.clone(),
            out_trade_no: OutTradeNo::new(number).map_err(|error| unusable("out_trade_no", &error))?,
            fact,
            trade_no,
            money,
            occurred_at: time(&plain.success_time),
            source: self.source,
            channel_data,
        };
        // A fact without a name cannot be booked; better refused here, with its bytes kept.
        notice.key().map_err(|error| unusable("out_trade_no", &error))?;
        Ok(notice)
    }

    /// Whose number space it is. Partner messages name the provider in `sp_mchid`; one page of refund
    /// examples has `mchid` there (facts 3.5), so a partner account takes that in its absence.
    fn check_owner(&self, plain: &Plain) -> Result<(), Rejection> {
        let (field, number) = owner(plain).ok_or_else(|| missing(if self.partner { "sp_mchid" } else { "mchid" }))?;
        if number != self.mchid {
            return Err(foreign(format!("{field}: {} is not {}", quote(number), self.mchid)));
        }
        if field == "sp_mchid" && !self.partner {
            return Err(foreign(format!(
                "sp_mchid: a service provider's message, and the account is configured as a direct merchant; set `partner` for {number}"
            )));
        }
        Ok(())
    }

    fn check_app(&self, plain: &Plain) -> Result<(), Rejection> {
        let app = string(&plain.sp_appid).or_else(|| string(&plain.appid));
        match app {
            Some(app) if !self.app_ids.is_empty() && !self.app_ids.iter().any(|known| known == app) => {
                Err(foreign(format!("appid: {} is not configured", quote(app))))
            }
            _ => Ok(()),
        }
    }
}

fn owner(plain: &Plain) -> Option<(&'static str, &str)> {
    let named = |field, value| string(value).map(|number| (field, number));
    named("sp_mchid", &plain.sp_mchid).or_else(|| named("mchid", &plain.mchid))
}

fn trade_no(plain: &Plain) -> Result<TradeNo, Rejection> {
    let number = text::number("transaction_id", string(&plain.transaction_id).unwrap_or_default())?;
    TradeNo::new(number).map_err(|error| unusable("transaction_id", &error))
}

fn amount(plain: &Plain) -> Result<Amount, Rejection> {
    plain
        .amount
        .as_ref()
        .map_or_else(|| Ok(Amount::default()), |raw| serde_json::from_str(raw.get()).map_err(unreadable))
}

fn money(field: &str, value: &Option<Value>, amount: &Amount) -> Result<Money, Rejection> {
    let value = value.as_ref().ok_or_else(|| missing(field))?;
    let minor = value.as_i64().ok_or_else(|| unusable(field, &"no whole number of fen"))?;
    // Refunds carry no currency, domestic payments always CNY.
    let currency = match &amount.currency {
        None => Currency::CNY,
        Some(value) => value
            .as_str()
            .and_then(|text| Currency::parse(text).ok())
            .ok_or_else(|| unusable("amount.currency", &"no currency code"))?,
    };
    Money::from_minor(minor, currency).map_err(|error| unusable(field, &error))
}

fn time(value: &Option<Value>) -> Option<Micros> {
    string(value).and_then(times::read)
}

/// What a payment says besides. Never `payer`: it names the buyer.
fn payment_data(data: &mut Map<String, Value>, plain: &Plain, amount: &Amount) {
    let payer_total = if amount.payer_total.is_some() { &amount.payer_total } else { &amount.payer_amount };
    for (name, value) in [
        ("trade_state", &plain.trade_state),
        ("trade_type", &plain.trade_type),
        ("bank_type", &plain.bank_type),
        ("success_time", &plain.success_time),
        ("attach", &plain.attach),
        ("sub_mchid", &plain.sub_mchid),
        ("payer_total", payer_total),
    ] {
        keep(data, name, value);
    }
    promotions(data, &plain.promotion_detail);
}

fn refund_data(plain: &Plain, amount: &Amount, state: &str) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("refund_status".to_owned(), state.into());
    for (name, value) in [
        ("refund_id", &plain.refund_id),
        ("success_time", &plain.success_time),
        ("refund_account", &plain.refund_account),
        ("sub_mchid", &plain.sub_mchid),
        ("total", &amount.total),
        ("payer_refund", &amount.payer_refund),
    ] {
        keep(&mut data, name, value);
    }
    data
}

/// Coupons by who bears them in the end: `NOCASH` ones are not settled to the merchant (facts 3.2).
fn promotions(data: &mut Map<String, Value>, detail: &Option<Value>) {
    let coupons = detail.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if coupons.is_empty() {
        return;
    }
    let sum = |wanted: Option<&str>| {
        coupons
            .iter()
            .filter(|coupon| wanted.is_none() || coupon.get("type").and_then(Value::as_str) == wanted)
            .filter_map(|coupon| coupon.get("amount").and_then(Value::as_i64))
            .fold(0i64, i64::saturating_add)
    };
    data.insert("promotion_total".to_owned(), sum(None).into());
    data.insert("promotion_nocash".to_owned(), sum(Some("NOCASH")).into());
}

/// Scalars only: an object in one of these places is something new that could hold anything.
fn keep(data: &mut Map<String, Value>, name: &str, value: &Option<Value>) {
    if let Some(value @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) = value {
        data.insert(name.to_owned(), value.clone());
    }
}

/// The words of an error answer, for a log line: `http 404 ORDER_NOT_EXIST`.
pub(super) fn error_word(answer: &Answer) -> String {
    #[derive(Deserialize)]
    struct Error {
        code: String,
    }
    match serde_json::from_slice::<Error>(&answer.body) {
        Ok(error) => format!("http {} {}", answer.status, quote(&error.code)),
        Err(_) => format!("http {}", answer.status),
    }
}

/// Signed, and no JSON of a shape that we know. Serde tells a repeated member from others only in its text.
fn unreadable(error: serde_json::Error) -> Rejection {
    let what = error.to_string();
    let reason = if what.starts_with("duplicate field") { Reason::Ambiguous } else { Reason::MissingField };
    Rejection::new(reason, format!("plaintext: {}", quote(&what)))
}

fn unusable(field: &str, why: &dyn std::fmt::Display) -> Rejection {
    Rejection::new(Reason::MissingField, format!("{field}: {why}"))
}

fn foreign(detail: String) -> Rejection {
    Rejection::new(Reason::ForeignIdentity, detail)
}
