//! The exercise on PostgreSQL: the oldest and the newest that we have.

use payonce::store::server::{Clock, ServerOptions};

mod postgres_15 {
    use super::{Clock, ServerOptions};

    async fn fresh(case: &str) -> ServerOptions {
        crate::servers::postgres("PAYONCE_TEST_POSTGRES15", case, Clock::Caller).await
    }

    payonce::exercise!(sqlx::PgConnection, fresh);
}

mod postgres_18 {
    use super::{Clock, ServerOptions};

    async fn fresh(case: &str) -> ServerOptions {
        crate::servers::postgres("PAYONCE_TEST_POSTGRES18", case, Clock::Caller).await
    }

    payonce::exercise!(sqlx::PgConnection, fresh);
}
