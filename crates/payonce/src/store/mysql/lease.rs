//! Leasing effects without RETURNING: what is locked is read first, and leased then.
//!
//! Here: the two looks for what may be claimed, and the mark. Not here: the transaction around them (`mysql`).

use sqlx::MySqlConnection;

use super::{execute, fetch, query};
use crate::{
    error::Error,
    store::{Effect, EffectState, Lease, rows},
};

/// Effects to lease: the ready ones that are due, then those whose lease has run out.
macro_rules! to_lease {
    ($state:literal, $due:literal, $and:literal) => {
        concat!(
            "SELECT ",
            effect_columns!(),
            " FROM payonce_effect AS e FORCE INDEX (payonce_effect_open)
              WHERE e.state = '",
            $state,
            "' AND e.sink = ? AND e.",
            $due,
            " <= ? + ",
            shift!("?"),
            $and,
            " ORDER BY e.due_at LIMIT ? FOR UPDATE SKIP LOCKED"
        )
    };
}

pub(super) async fn some(connection: &mut MySqlConnection, lease: &Lease) -> Result<Vec<Effect>, Error> {
    const READY: &str = to_lease!(
        "ready",
        "due_at",
        " AND (e.after IS NULL OR EXISTS (
               SELECT 1 FROM payonce_effect AS b WHERE b.effect_key = e.after AND b.state = 'done'))"
    );
    const EXPIRED: &str = to_lease!("leased", "lease_until", "");
    const LEASE: &str = concat!(
        "UPDATE ",
        array!("e": long),
        " STRAIGHT_JOIN payonce_effect AS e FORCE INDEX (PRIMARY) ON e.effect_key = j.e
          SET e.state = 'leased', e.lease_token = ?, e.tries = e.tries + 1, e.lease_until = ? + ",
        shift!("?")
    );
    let mut claimed: Vec<Effect> = Vec::new();
    for sql in [READY, EXPIRED] {
        let limit = lease.limit - claimed.len() as i64;
        if limit > 0 {
            let now = lease.now.0;
            let query = query(sql).bind(lease.sink.as_bytes().to_vec()).bind(now).bind(now).bind(limit);
            let found = fetch(connection, "look for effects to claim", query).await?;
            claimed.extend(found.iter().map(rows::effect).collect::<Result<Vec<_>, _>>()?);
        }
    }
    if claimed.is_empty() {
        return Ok(claimed);
    }
    let keys: Vec<serde_json::Value> =
        claimed.iter().map(|effect| serde_json::json!({ "e": effect.key.as_str() })).collect();
    let query = query(LEASE)
        .bind(serde_json::Value::Array(keys).to_string())
        .bind(lease.token.as_bytes().to_vec())
        .bind(lease.until.0)
        .bind(lease.now.0);
    execute(connection, "claim effects", query).await?;
    for effect in &mut claimed {
        effect.state = EffectState::Leased;
        effect.tries += 1;
    }
    Ok(claimed)
}
