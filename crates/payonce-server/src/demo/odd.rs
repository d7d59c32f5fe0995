//! Callbacks that are wrong, or early: one of each, for an order of its own.
//!
//! Here: the list, how each is made, and what is looked at. Not here: what must come of it (`report`).

use payonce_sim::{Platform, faults, text::now_unix};
use serde::Serialize;

use super::{
    Result, Scene, Watch, play,
    report::Odd,
    stage::{Client, FEN, Stage},
};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Case {
    /// Signed with somebody else's key.
    ForgedWechat,
    /// The same at the other platform.
    ForgedAlipay,
    /// A signature that WeChat Pay makes wrong on purpose.
    Probe,
    /// Signed ten minutes ago.
    Stale,
    /// Signed right, encrypted with another APIv3 key.
    Undecryptable,
    /// Signed right, for another seller.
    WrongSeller,
    /// Signed right: 1 fen instead of the order's amount.
    WrongAmount,
    /// Signed right, before the order is registered.
    UnknownOrder,
}

pub(crate) const CASES: [Case; 8] = [
    Case::ForgedWechat,
    Case::ForgedAlipay,
    Case::Probe,
    Case::Stale,
    Case::Undecryptable,
    Case::WrongSeller,
    Case::WrongAmount,
    Case::UnknownOrder,
];

/// What somebody pays who hopes that nobody compares.
const TOO_LITTLE: i64 = 1;

impl Case {
    /// Who sends it.
    pub(crate) const fn platform(self) -> Platform {
        match self {
            Self::ForgedWechat | Self::Probe | Self::Stale | Self::Undecryptable | Self::WrongAmount => {
                Platform::Wechat
            }
            Self::ForgedAlipay | Self::WrongSeller | Self::UnknownOrder => Platform::Alipay,
        }
    }

    /// The order that it is about.
    pub(super) fn order_no(self) -> String {
        let place = CASES.iter().position(|case| *case == self).map_or(0, |at| at + 1);
        format!("DEMO-ODD-{place}")
    }

    /// Of the two that are money, how much.
    pub(super) const fn booked_amount(self) -> Option<i64> {
        match self {
            Self::WrongAmount => Some(TOO_LITTLE),
            Self::UnknownOrder => Some(FEN),
            _ => None,
        }
    }

    fn request(self, stage: &Stage) -> payonce_sim::Request {
        let (order_no, now) = (self.order_no(), now_unix());
        let wechat = stage.wechat_paid(&order_no, self.booked_amount().unwrap_or(FEN));
        let alipay = stage.alipay_paid(&order_no, FEN);
        match self {
            Self::ForgedWechat => faults::forged_wechat(&wechat, now, &stage.stranger),
            Self::ForgedAlipay => faults::forged_alipay(&alipay, now, &stage.stranger),
            Self::Probe => faults::probe(&wechat.send(now, wechat.disorder)),
            Self::Stale => faults::stale(&wechat, now, 600),
            Self::Undecryptable => faults::undecryptable(&wechat, now),
            Self::WrongAmount => wechat.send(now, wechat.disorder),
            Self::WrongSeller => {
                let mut fields = alipay.fields;
                payonce_sim::alipay::set(&mut fields, "seller_id", "2088999999999999");
                stage.alipay.notify(fields).send(now)
            }
            Self::UnknownOrder => alipay.send(now),
        }
    }
}

/// Sends each of them, one after the other.
pub(super) async fn all(stage: &Stage, client: &Client, watch: &Watch<'_>) -> Result<Vec<Odd>> {
    watch(Scene::Odd, 0);
    let mut all = Vec::new();
    for case in CASES {
        all.push(one(stage, client, case).await?);
        watch(Scene::Odd, 1);
    }
    Ok(all)
}

async fn one(stage: &Stage, client: &Client, case: Case) -> Result<Odd> {
    let mut odd = Odd::of(case, case.order_no());
    if case != Case::UnknownOrder {
        client.register(&odd.order_no).await?;
    }
    let before = client.words().await?;
    odd.answered = play::answered(&client.deliver(case.platform(), &case.request(stage)).await);
    let after = client.words().await?;
    let new = after.into_iter().filter(|(word, count)| *count > before.get(word).copied().unwrap_or(0));
    odd.word = new.map(|(word, _)| word).collect::<Vec<_>>().join(" + ");
    if case == Case::UnknownOrder {
        let registered = client.register(&odd.order_no).await?;
        odd.status_when_registered = registered["status"].as_str().map(str::to_owned);
        let again = client.deliver(case.platform(), &case.request(stage)).await;
        odd.answered_again = Some(play::answered(&again));
    }
    Ok(odd)
}
