//! The only place where failures become HTTP on the admin API.
//!
//! Here: the closed table of codes with their statuses and documentation, and how an error is written. Not
//! here: what a platform is told (a channel's `reply`).

use std::fmt;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use payonce::register::Refused;
use serde_json::json;

/// Every code that the admin API answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// No token, or another one.
    Unauthorized,
    /// No such path.
    NotFound,
    /// The path takes other methods.
    MethodNotAllowed,
    /// The body is no JSON text.
    InvalidJson,
    /// JSON, but not what this request takes.
    InvalidRequest,
    /// The body is larger than allowed.
    TooLarge,
    /// The body did not arrive.
    BodyTimeout,
    /// No account of this name.
    UnknownAccount,
    /// The account pays another shop's orders.
    AccountOfOtherShop,
    /// No account pays this shop's orders.
    ShopWithoutAccount,
    /// No such order.
    OrderNotFound,
    /// Registered with another amount or currency.
    OrderAmountDiffers,
    /// Registered as another kind.
    OrderKindDiffers,
    /// The number belongs to another order.
    NumberTaken,
    /// The number is registered with another amount.
    AttemptAmountDiffers,
    /// The order gets no further numbers.
    OrderEnded,
    /// The order names no number.
    NoNumber,
    /// The shop's own table has it with another amount.
    OrderTableDiffers,
    /// No such effect.
    EffectNotFound,
    /// A worker has the effect.
    EffectLeased,
    /// The effect is not dead.
    EffectNotDead,
    /// The platform's answer is not believed.
    AnswerNotBelieved,
    /// Whether it was done is not known.
    NotKnown,
    /// The database did not do it.
    DatabaseBusy,
    /// Not ready for traffic.
    NotReady,
    /// A fault of ours.
    Internal,
}

impl Code {
    /// Every code, for the page in the docs.
    pub const ALL: [Self; 26] = [
        Self::Unauthorized,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::InvalidJson,
        Self::InvalidRequest,
        Self::TooLarge,
        Self::BodyTimeout,
        Self::UnknownAccount,
        Self::AccountOfOtherShop,
        Self::ShopWithoutAccount,
        Self::OrderNotFound,
        Self::OrderAmountDiffers,
        Self::OrderKindDiffers,
        Self::NumberTaken,
        Self::AttemptAmountDiffers,
        Self::OrderEnded,
        Self::NoNumber,
        Self::OrderTableDiffers,
        Self::EffectNotFound,
        Self::EffectLeased,
        Self::EffectNotDead,
        Self::AnswerNotBelieved,
        Self::NotKnown,
        Self::DatabaseBusy,
        Self::NotReady,
        Self::Internal,
    ];

    /// As answered.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::InvalidJson => "invalid_json",
            Self::InvalidRequest => "invalid_request",
            Self::TooLarge => "too_large",
            Self::BodyTimeout => "body_timeout",
            Self::UnknownAccount => "unknown_account",
            Self::AccountOfOtherShop => "account_of_other_shop",
            Self::ShopWithoutAccount => "shop_without_account",
            Self::OrderNotFound => "order_not_found",
            Self::OrderAmountDiffers => "order_amount_differs",
            Self::OrderKindDiffers => "order_kind_differs",
            Self::NumberTaken => "number_taken",
            Self::AttemptAmountDiffers => "attempt_amount_differs",
            Self::OrderEnded => "order_ended",
            Self::NoNumber => "no_number",
            Self::OrderTableDiffers => "order_table_differs",
            Self::EffectNotFound => "effect_not_found",
            Self::EffectLeased => "effect_leased",
            Self::EffectNotDead => "effect_not_dead",
            Self::AnswerNotBelieved => "answer_not_believed",
            Self::NotKnown => "not_known",
            Self::DatabaseBusy => "database_busy",
            Self::NotReady => "not_ready",
            Self::Internal => "internal",
        }
    }

    /// The HTTP status that goes with it.
    pub const fn status(self) -> u16 {
        match self {
            Self::InvalidJson
            | Self::InvalidRequest
            | Self::UnknownAccount
            | Self::AccountOfOtherShop
            | Self::ShopWithoutAccount => 400,
            Self::Unauthorized => 401,
            Self::NotFound | Self::OrderNotFound | Self::EffectNotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::BodyTimeout => 408,
            Self::OrderAmountDiffers
            | Self::OrderKindDiffers
            | Self::NumberTaken
            | Self::AttemptAmountDiffers
            | Self::OrderEnded
            | Self::NoNumber
            | Self::OrderTableDiffers
            | Self::EffectLeased
            | Self::EffectNotDead => 409,
            Self::TooLarge => 413,
            Self::AnswerNotBelieved => 422,
            Self::Internal => 500,
            Self::NotKnown | Self::DatabaseBusy | Self::NotReady => 503,
        }
    }

    /// What it means and what to do, for the page in the docs.
    pub const fn doc(self) -> &'static str {
        match self {
            Self::Unauthorized => {
                "The request bears no token, or not the configured one. Send `Authorization: Bearer TOKEN`."
            }
            Self::NotFound => "There is nothing at this path.",
            Self::MethodNotAllowed => "The path exists and does not take this method.",
            Self::InvalidJson => {
                "The body is not a JSON text; the message says at which line and column it stops being one."
            }
            Self::InvalidRequest => {
                "A field or parameter is unknown, missing, or has no acceptable value; the message names it and its position."
            }
            Self::TooLarge => "The body is larger than `max_body_bytes` in `[server]`.",
            Self::BodyTimeout => "The body did not arrive in time, or broke off. Send the request again.",
            Self::UnknownAccount => "No account of this name is configured.",
            Self::AccountOfOtherShop => {
                "The account is configured for another shop, and an account pays only its own shop's orders."
            }
            Self::ShopWithoutAccount => "No account is configured for this shop, so nothing could pay its orders.",
            Self::OrderNotFound => "No order of this number is registered for the shop.",
            Self::OrderAmountDiffers => {
                "The order is registered with another amount or currency. Nothing has changed; register the new amount under a new order number."
            }
            Self::OrderKindDiffers => "The order is registered as another kind. Nothing has changed.",
            Self::NumberTaken => {
                "A payable number belongs to another order. Nothing has changed; a number is used for one order only."
            }
            Self::AttemptAmountDiffers => {
                "A payable number is registered for this order with another amount. The platforms freeze a number's amount; use a new number."
            }
            Self::OrderEnded => "The order is closed or refunded and gets no further numbers.",
            Self::OrderTableDiffers => {
                "Register the amount that the order has in your own table, or correct it there first."
            }
            Self::NoNumber => "The list of attempts is empty. Leave it out to get one attempt per account of the shop.",
            Self::EffectNotFound => "No effect has this key.",
            Self::EffectLeased => {
                "A worker is delivering the effect at this moment, or has died doing so. When its lease ends, it is delivered again by itself."
            }
            Self::EffectNotDead => {
                "Only a dead effect is retried by hand: this one is done, cancelled, or due by itself."
            }
            Self::AnswerNotBelieved => {
                "The platform's answer does not verify for this account. Hand in body and headers exactly as received, with `X-Payonce-Answer-Status`."
            }
            Self::NotKnown => {
                "Whether it was done is not known: the queue is full, the database failed or was slow. Send the request again; it is done once."
            }
            Self::DatabaseBusy => "The database did not do it. Send the request again; what was done is done once.",
            Self::NotReady => "The database does not answer, or the gateway is going down: send it no callbacks.",
            Self::Internal => "A fault of ours. The log has the details.",
        }
    }

    /// The code of a registration that was refused.
    pub const fn of_refused(refused: &Refused) -> Self {
        match refused {
            Refused::AmountDiffers(_) => Self::OrderAmountDiffers,
            Refused::KindDiffers(_) => Self::OrderKindDiffers,
            Refused::NumberTaken(..) => Self::NumberTaken,
            Refused::AttemptAmountDiffers(..) => Self::AttemptAmountDiffers,
            Refused::Ended(_) => Self::OrderEnded,
            Refused::NoNumber => Self::NoNumber,
            Refused::OrderTableDiffers(_) => Self::OrderTableDiffers,
        }
    }
}

/// A failure as the caller reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    code: Code,
    message: String,
    hint: Option<String>,
}

impl ApiError {
    /// What happened, in one sentence. It must not tell what only the log may know.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    /// What to do. Without one, the code's documentation is the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Which row of the table.
    pub fn code(&self) -> Code {
        self.code
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)
    }
}

impl std::error::Error for ApiError {}

/// The operator reads the database's words in the log, the caller reads ours.
impl From<payonce::Error> for ApiError {
    fn from(error: payonce::Error) -> Self {
        if error.is_transient() {
            tracing::warn!(%error, "an admin request met a busy database");
            Self::new(Code::DatabaseBusy, "the database is busy or away")
        } else {
            tracing::error!(%error, "an admin request failed");
            Self::new(Code::Internal, "the database refused the request")
        }
    }
}

/// What the parser says has the field's name and the position in it.
impl From<serde_json::Error> for ApiError {
    fn from(error: serde_json::Error) -> Self {
        let code = if error.is_data() { Code::InvalidRequest } else { Code::InvalidJson };
        Self::new(code, error.to_string())
    }
}

impl From<payonce::ids::IdError> for ApiError {
    fn from(error: payonce::ids::IdError) -> Self {
        Self::new(Code::InvalidRequest, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let hint = self.hint.as_deref().unwrap_or_else(|| self.code.doc());
        let body = json!({"error": {"code": self.code.as_str(), "message": self.message, "hint": hint}});
        let mut response = (status, Json(body)).into_response();
        if self.code == Code::Unauthorized {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_table_is_complete_and_its_codes_are_distinct() {
        let codes: HashSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!((400..600).contains(&code.status()), "{code:?}");
            assert!(code.doc().ends_with(['.', '`']) && code.doc().len() > 20, "{code:?}");
        }
    }

    #[test]
    fn the_centres_own_codes_are_kept() {
        use payonce::{money::Money, order::OrderStatus};
        for refused in
            [Refused::AmountDiffers(Money::cny(1).unwrap()), Refused::Ended(OrderStatus::Closed), Refused::NoNumber]
        {
            assert_eq!(Code::of_refused(&refused).as_str(), refused.code());
        }
    }
}
