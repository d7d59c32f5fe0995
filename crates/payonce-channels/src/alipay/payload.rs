//! What a verified notification says.
//!
//! Here: whose it is, telling kinds and statuses apart, and turning them into notices. Not here: what
//! follows from a notice; answers to queries, which have other fields (`answer`, with the same words).
//!
//! A status by itself says little: a partial refund is announced as TRADE_SUCCESS again, a full refund and
//! an unpaid time-out are both TRADE_CLOSED (facts 2.4; F087, F088). The refund and payment fields decide.

use encoding_rs::{Encoding, GBK, UTF_8};
use payonce::{
    channel::{Bearing, Reason, Rejection},
    ids::{AccountName, Merchant, OutTradeNo, TradeNo},
    money::{Currency, Money},
    notice::{Fact, Notice, Source},
};
use serde_json::{Map, Value};

use super::{
    form::Form,
    verify::{TRADE_NOTIFICATION, Verified},
};
use crate::{
    text::{self, missing, quote},
    times,
};

/// Created, not paid; not notified by default (opendocs.alipay.com/open/270/105902).
pub(super) const WAIT_BUYER_PAY: &str = "WAIT_BUYER_PAY";
/// Paid, can be refunded; or a part of it was refunded.
pub(super) const TRADE_SUCCESS: &str = "TRADE_SUCCESS";
/// Paid, can no longer be refunded: at once, or months later.
pub(super) const TRADE_FINISHED: &str = "TRADE_FINISHED";
/// Never paid, or all of it refunded.
pub(super) const TRADE_CLOSED: &str = "TRADE_CLOSED";

/// The refund number where the shop gave none: it is then absent, the trade number or the order number
/// (facts 2.4 has sources for all three).
const NO_REFUND_NUMBER: &str = "-";

/// What effects may want to know. No `buyer_id`, `buyer_logon_id`, `buyer_open_id` or `seller_email`: those
/// name people.
const PAYMENT_DATA: [&str; 8] = [
    "trade_status",
    "notify_id",
    "receipt_amount",
    "buyer_pay_amount",
    "invoice_amount",
    "point_amount",
    "passback_params",
    "subject",
];
/// `refund_fee` only to be compared with: it may be the sum of all refunds so far (facts 2.4).
const REFUND_DATA: [&str; 5] = ["trade_status", "notify_id", "refund_fee", "passback_params", "subject"];

/// Names of parameters that carry something we act on or pass on. See [`check_borders`].
const KNOWN_PARAMETERS: [&str; 38] = [
    "action",
    "app_id",
    "auth_app_id",
    "biz_content",
    "body",
    "buyer_id",
    "buyer_open_id",
    "buyer_pay_amount",
    "charset",
    "fund_bill_list",
    "gmt_close",
    "gmt_create",
    "gmt_payment",
    "gmt_refund",
    "invoice_amount",
    "method",
    "msg_method",
    "notify_id",
    "notify_time",
    "notify_type",
    "out_biz_no",
    "out_request_no",
    "out_trade_no",
    "passback_params",
    "point_amount",
    "receipt_amount",
    "refund_amount",
    "refund_fee",
    "refund_status",
    "send_back_fee",
    "seller_email",
    "seller_id",
    "sign_type",
    "subject",
    "total_amount",
    "trade_no",
    "trade_status",
    "version",
];

/// The account for which a message is read.
pub(super) struct Owner<'a> {
    pub(super) account: &'a AccountName,
    pub(super) merchant: &'a Merchant,
    pub(super) app_ids: &'a [String],
    pub(super) seller_id: &'a str,
}

pub(super) type Reading = (Vec<Notice>, Bearing);

/// Reads a notification of any kind.
pub(super) fn read(verified: &Verified<'_>, owner: &Owner<'_>) -> Result<Reading, Rejection> {
    let fields = Fields::new(verified.form());
    // A page return (GET parameters that the buyer's browser carries) is signed by the same key and says
    // neither; it proves nothing (facts 8, no. 30).
    let Some(kind) = fields.get("msg_method").or_else(|| fields.get("notify_type")) else {
        return Err(Rejection::new(Reason::Malformed, "neither notify_type nor msg_method: a page return, perhaps"));
    };
    check_owner(&fields, owner, kind == TRADE_NOTIFICATION.as_bytes())?;
    if kind == TRADE_NOTIFICATION.as_bytes() {
        return trade(&fields, owner);
    }
    Ok((Vec::new(), Bearing::Unsupported(quote(&fields.show(kind)).into())))
}

fn check_owner(fields: &Fields<'_>, owner: &Owner<'_>, is_trade: bool) -> Result<(), Rejection> {
    let app_id = fields.get("app_id");
    match app_id {
        Some(app_id) if !owner.app_ids.iter().any(|known| known.as_bytes() == app_id) => {
            return Err(foreign(format!("app_id: {} is not configured", quote(&fields.show(app_id)))));
        }
        None if is_trade => return Err(missing("app_id")),
        _ => {}
    }
    match fields.get("seller_id") {
        Some(seller) if seller != owner.seller_id.as_bytes() => {
            Err(foreign(format!("seller_id: {} is not {}", quote(&fields.show(seller)), owner.seller_id)))
        }
        // An app that acts for other merchants receives for all of them, so the payee has to be said.
        None if is_trade && fields.get("auth_app_id").is_some_and(|other| Some(other) != app_id) => {
            Err(missing("seller_id"))
        }
        _ => Ok(()),
    }
}

fn trade(fields: &Fields<'_>, owner: &Owner<'_>) -> Result<Reading, Rejection> {
    check_borders(fields.form)?;
    for required in ["notify_id", "trade_status"] {
        fields.get(required).ok_or_else(|| missing(required))?;
    }
    let status = fields.text("trade_status").unwrap_or_default();
    let notices = match status.as_str() {
        WAIT_BUYER_PAY => return Ok((Vec::new(), Bearing::NotFinal(status.into()))),
        TRADE_SUCCESS | TRADE_FINISHED if !refunds(fields) => vec![payment(fields, owner)?],
        TRADE_SUCCESS | TRADE_FINISHED => vec![payment(fields, owner)?, refund(fields, owner, false)?],
        TRADE_CLOSED => closed(fields, owner)?,
        _ => {
            return Err(Rejection::new(Reason::UnknownState, format!("trade_status: {}", quote(&status))));
        }
    };
    Ok((notices, Bearing::Facts))
}

/// TRADE_CLOSED by what else is there:
///
/// - refund fields: it was paid, and refunded; fully if the sum refunded is the whole amount.
/// - neither refund fields nor a payment time: closed unpaid. If it was paid all the same, the books say so
///   and `apply` holds it as `ClosedButPaid` (F088, O3).
/// - a payment time without refund fields: not documented. It was paid, so it is a payment, and not closed
///   unpaid. TRADE_CLOSED after a payment means that money went back, but this message does not say how much
///   or under which number. Booking the payment alone would leave a refunded order PAID and tell nobody;
///   booking a full refund would cancel an order on our inference. So the refund is stated with its amount
///   unknown and not as full: `apply` books the payment, leaves the order as it is, holds the refund as
///   `AmountUnknown` and asks.
fn closed(fields: &Fields<'_>, owner: &Owner<'_>) -> Result<Vec<Notice>, Rejection> {
    if refunds(fields) {
        return Ok(vec![payment(fields, owner)?, refund(fields, owner, true)?]);
    }
    if fields.get("gmt_payment").is_some() {
        return Ok(vec![payment(fields, owner)?, refund(fields, owner, false)?]);
    }
    let mut closing = owner.notice(fields.number("out_trade_no")?, Fact::Closed, Source::Callback)?;
    closing.trade_no = fields.get("trade_no").map(|_| fields.trade_no()).transpose()?;
    closing.occurred_at = fields.text("gmt_close").and_then(|text| times::read(&text));
    closing.channel_data = fields.data(&["trade_status", "notify_id"]);
    Ok(vec![closing])
}

/// Whether it tells of a refund. `refund_fee=0.00` stands on plain payments in an official sample, so zero
/// counts as absent; a value that cannot be read does not.
fn refunds(fields: &Fields<'_>) -> bool {
    let fee = fields.text("refund_fee").map(|text| Money::from_decimal(&text, Currency::CNY));
    let nonzero = fee.is_some_and(|fee| fee.map_or(true, |fee| fee.amount != 0));
    nonzero || fields.get("gmt_refund").is_some()
}

/// Of the five amounts it is `total_amount` that the shop asked for, also in refund messages (F070).
fn payment(fields: &Fields<'_>, owner: &Owner<'_>) -> Result<Notice, Rejection> {
    let mut notice = owner.notice(fields.number("out_trade_no")?, Fact::Payment, Source::Callback)?;
    notice.trade_no = Some(fields.trade_no()?);
    notice.money = Some(total(fields)?);
    notice.occurred_at = fields.text("gmt_payment").and_then(|text| times::read(&text));
    notice.channel_data = fields.data(&PAYMENT_DATA);
    Ok(notice)
}

/// The refund's own amount stays unknown: `refund_fee` may be this refund's or the sum of all so far.
fn refund(fields: &Fields<'_>, owner: &Owner<'_>, closes: bool) -> Result<Notice, Rejection> {
    let out_trade_no = fields.number("out_trade_no")?;
    let trade_no = fields.trade_no()?;
    let given = fields.get("out_biz_no").map(|_| fields.number("out_biz_no")).transpose()?;
    let refund_no = refund_number(given, trade_no.as_str(), &out_trade_no);
    let refunded = fields.text("refund_fee").and_then(|text| Money::from_decimal(&text, Currency::CNY).ok());
    let full = closes && refunded.is_some() && refunded == Some(total(fields)?);
    let mut notice = owner.notice(out_trade_no, Fact::Refund { refund_no, full }, Source::Callback)?;
    notice.trade_no = Some(trade_no);
    notice.occurred_at = fields.text("gmt_refund").and_then(|text| times::read(&text));
    notice.channel_data = fields.data(&REFUND_DATA);
    Ok(notice)
}

/// The refund's number where the shop gave one, else [`NO_REFUND_NUMBER`].
pub(super) fn refund_number(given: Option<String>, trade_no: &str, out_trade_no: &str) -> Box<str> {
    given.filter(|number| number != trade_no && number != out_trade_no).map_or(NO_REFUND_NUMBER.into(), String::into)
}

fn total(fields: &Fields<'_>) -> Result<Money, Rejection> {
    let text = fields.text("total_amount").ok_or_else(|| missing("total_amount"))?;
    Money::from_decimal(&text, Currency::CNY).map_err(|error| unusable("total_amount", &error))
}

/// Values are not escaped in the signed text, so `subject=a&total_amount=9` inside one value reads like two
/// parameters: whoever sees a signature and controls a text can move the borders without breaking it
/// (facts 8, no. 29). A message in which that is possible is not taken by itself.
fn check_borders(form: &Form) -> Result<(), Rejection> {
    for (name, value) in form.iter() {
        let pieces = value.split(|&byte| byte == b'&').skip(1);
        for piece in pieces {
            let hidden = piece.split(|&byte| byte == b'=').next().filter(|hidden| hidden.len() < piece.len());
            if hidden.is_some_and(|hidden| KNOWN_PARAMETERS.iter().any(|known| known.as_bytes() == hidden)) {
                let name = quote(&String::from_utf8_lossy(name));
                return Err(Rejection::new(Reason::Ambiguous, format!("{name}: its value hides another parameter")));
            }
        }
    }
    Ok(())
}

impl Owner<'_> {
    /// A notice with what all have; the rest is set by its kind.
    pub(super) fn notice(&self, out_trade_no: String, fact: Fact, source: Source) -> Result<Notice, Rejection> {
        let notice = Notice {
            merchant: self.merchant.clone(),
            account: self.account.clone(),
            out_trade_no: OutTradeNo::new(out_trade_no).map_err(|error| unusable("out_trade_no", &error))?,
            fact,
            trade_no: None,
            money: None,
            occurred_at: None,
            source,
            channel_data: Map::new(),
        };
        // A fact without a name cannot be booked; better refused here, with its bytes kept.
        notice.key().map_err(|error| unusable("out_trade_no", &error))?;
        Ok(notice)
    }
}

/// The parameters, and the charset in which their texts are to be read.
struct Fields<'f> {
    form: &'f Form,
    charset: &'static Encoding,
}

impl<'f> Fields<'f> {
    /// The charset is the notification's own word, which is signed. Some products send none: then what is
    /// good UTF-8 is UTF-8, and everything else GBK, the platform's historic default.
    fn new(form: &'f Form) -> Self {
        let word = form.get("charset").map(|word| String::from_utf8_lossy(word).to_ascii_lowercase());
        let charset = match word.as_deref() {
            Some("utf-8" | "utf8") => UTF_8,
            Some("gbk" | "gb2312" | "gb18030") => GBK,
            _ if form.iter().all(|(_, value)| std::str::from_utf8(value).is_ok()) => UTF_8,
            _ => GBK,
        };
        Self { form, charset }
    }

    /// The bytes of a parameter that has a value.
    fn get(&self, name: &str) -> Option<&'f [u8]> {
        self.form.get(name).filter(|value| !value.is_empty())
    }

    /// For people: what cannot be read is replaced (F016).
    fn show(&self, bytes: &[u8]) -> String {
        self.charset.decode_without_bom_handling(bytes).0.into_owned()
    }

    fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(|bytes| self.show(bytes))
    }

    /// For keys: what cannot be read is refused, never replaced.
    fn number(&self, name: &str) -> Result<String, Rejection> {
        let bytes = self.get(name).ok_or_else(|| missing(name))?;
        let text = self
            .charset
            .decode_without_bom_handling_and_without_replacement(bytes)
            .ok_or_else(|| unusable(name, &"holds characters that could not be read"))?;
        text::number(name, &text).map(str::to_owned)
    }

    fn trade_no(&self) -> Result<TradeNo, Rejection> {
        TradeNo::new(self.number("trade_no")?).map_err(|error| unusable("trade_no", &error))
    }

    fn data(&self, names: &[&str]) -> Map<String, Value> {
        names.iter().filter_map(|name| Some(((*name).to_owned(), Value::String(self.text(name)?)))).collect()
    }
}

pub(super) fn unusable(field: &str, why: &dyn std::fmt::Display) -> Rejection {
    Rejection::new(Reason::MissingField, format!("{field}: {why}"))
}

fn foreign(detail: String) -> Rejection {
    Rejection::new(Reason::ForeignIdentity, detail)
}
