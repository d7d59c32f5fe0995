//! On which servers the races are run.
//!
//! Here: each server with what its engine has a word of its own for, and the tests by their names. Not here:
//! what happens in them (`databases`), where the servers are (`crate::servers`).

use super::*;

macro_rules! cases {
    ($engine:ty, $fresh:path: $($case:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            crate::databases::$case::<$engine>($fresh(stringify!($case)).await).await;
        }
    )*};
    ($engine:ty, $fresh:path, $repeatable:path, $end_the_others:path) => {
        cases!(
            $engine, $fresh:
            a_hold_and_a_registration_meet,
            a_registration_and_a_notice_meet,
            a_refund_held_and_its_payment_meet,
            no_ghost_is_left_of_a_fact_that_two_gateways_have,
            a_fact_booked_meanwhile_is_a_repeat_and_not_held,
            an_answer_from_a_reading_is_covered_by_a_write,
            a_transaction_sees_what_is_committed_meanwhile,
            nothing_is_cut_or_converted,
            a_lock_time_out_is_rolled_back_whole_and_run_again,
            a_failed_batch_keeps_no_lock,
            a_wrong_clock_steals_no_lease,
            claims_share_nothing_and_block_nobody,
            migrations_that_start_together_are_one,
            the_same_facts_at_several_gateways_are_booked_once,
        );

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_rerun_in_a_new_transaction_sees_the_winner() {
            let options = $fresh("a_rerun_in_a_new_transaction").await;
            crate::databases::a_rerun_in_a_new_transaction_sees_the_winner::<$engine>(options, $repeatable).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_session_that_was_ended_is_replaced() {
            let options = $fresh("a_session_that_was_ended").await;
            let database = crate::databases::open::<$engine>(&options).await;
            database.register(&registration("O1", 100)).await.unwrap().unwrap();
            $end_the_others(&options).await;
            crate::databases::it_still_books(database).await;
        }
    };
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::*;

    const REPEATABLE: &str = "SET default_transaction_isolation = 'repeatable read'";

    async fn end_the_others(options: &ServerOptions) {
        const SQL: &str = "\
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let mut admin = <sqlx::PgConnection as Engine>::connect(options).await.unwrap();
        sqlx::raw_sql(SQL).execute(&mut admin).await.unwrap();
    }

    mod v15 {
        use super::*;

        async fn fresh(case: &str) -> ServerOptions {
            crate::servers::postgres("PAYONCE_TEST_POSTGRES15", case, Clock::Caller).await
        }

        cases!(sqlx::PgConnection, fresh, REPEATABLE, end_the_others);
    }

    mod v18 {
        use super::*;

        async fn fresh(case: &str) -> ServerOptions {
            crate::servers::postgres("PAYONCE_TEST_POSTGRES18", case, Clock::Caller).await
        }

        cases!(sqlx::PgConnection, fresh, REPEATABLE, end_the_others);
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use sqlx::Row;

    use super::*;

    const REPEATABLE: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ";

    async fn end_the_others(options: &ServerOptions) {
        const SQL: &str = "\
            SELECT CAST(id AS SIGNED) FROM information_schema.processlist
            WHERE db = DATABASE() AND id <> CONNECTION_ID()";
        let mut admin = <sqlx::MySqlConnection as Engine>::connect(options).await.unwrap();
        for row in sqlx::query(SQL).fetch_all(&mut admin).await.unwrap() {
            let kill = format!("KILL {}", row.get::<i64, _>(0));
            sqlx::raw_sql(sqlx::AssertSqlSafe(kill)).execute(&mut admin).await.unwrap();
        }
    }

    mod mariadb {
        use super::*;

        async fn fresh(case: &str) -> ServerOptions {
            crate::servers::mysql("PAYONCE_TEST_MARIADB", case, Clock::Caller).await
        }

        cases!(sqlx::MySqlConnection, fresh, REPEATABLE, end_the_others);
    }

    mod seekdb {
        use super::*;

        async fn fresh(case: &str) -> ServerOptions {
            crate::servers::mysql("PAYONCE_TEST_SEEKDB", case, Clock::Caller).await
        }

        cases!(sqlx::MySqlConnection, fresh, REPEATABLE, end_the_others);
    }

    /// A migration that broke off half-way (DDL commits by itself) is finished by the next start.
    #[tokio::test]
    async fn half_a_migration_is_finished() {
        let options =
            crate::servers::mysql("PAYONCE_TEST_MARIADB", "half_a_migration_is_finished", Clock::Caller).await;
        let database = open::<sqlx::MySqlConnection>(&options).await;
        let mut admin = <sqlx::MySqlConnection as Engine>::connect(&options).await.unwrap();
        const HALF: &str = "UPDATE payonce_migrations SET success = FALSE; DROP TABLE payonce_effect, payonce_callback";
        sqlx::raw_sql(HALF).execute(&mut admin).await.unwrap();
        assert_eq!(Database::<sqlx::MySqlConnection>::migrate(&options).await.unwrap(), [1]);
        database.register(&registration("O1", 100)).await.unwrap().unwrap();
        it_still_books(database).await;
    }
}
