//! The exercise on MariaDB, and on seekdb: a second engine of the dialect, which keeps the SQL honest.

use payonce::store::server::{Clock, ServerOptions};

mod mariadb {
    use super::{Clock, ServerOptions};

    async fn fresh(case: &str) -> ServerOptions {
        crate::servers::mysql("PAYONCE_TEST_MARIADB", case, Clock::Caller).await
    }

    payonce::exercise!(sqlx::MySqlConnection, fresh);
}

mod seekdb {
    use super::{Clock, ServerOptions};

    async fn fresh(case: &str) -> ServerOptions {
        crate::servers::mysql("PAYONCE_TEST_SEEKDB", case, Clock::Caller).await
    }

    payonce::exercise!(sqlx::MySqlConnection, fresh);
}
