//! The database servers: a fresh database for each turn, copied from one that was filled once, dropped afterwards.
//!
//! Here: where the servers are, names, copies. Not here: starting servers and installing anything
//! (`cargo xtask bench`, `cargo xtask services`), and what is in a database (`books`).

use std::{env, fs, path::Path};

use crate::{
    Outcome,
    engines::{Connection, Database, Engine},
};

/// What every database of a benchmark is called, with the process that made it: leftovers of one that was killed are
/// found by it.
const PREFIX: &str = "payonce_bench_";

/// The servers, and what was made on them.
pub(crate) struct Servers {
    postgres: Option<String>,
    mariadb: Option<String>,
    made: Vec<Database>,
    count: usize,
}

/// The service that an engine needs, and the variable with its URL.
pub(crate) const fn service(engine: Engine) -> Option<(&'static str, &'static str)> {
    match engine {
        Engine::Sqlite => None,
        Engine::Postgres => Some(("postgres18", "PAYONCE_TEST_POSTGRES18")),
        Engine::Mariadb => Some(("mariadb", "PAYONCE_TEST_MARIADB")),
    }
}

impl Servers {
    /// By the environment, or by what `cargo xtask services` wrote last.
    pub(crate) fn find(target: &Path) -> Self {
        let written = fs::read_to_string(target.join("services").join("env")).unwrap_or_default();
        let url = |engine| {
            let (_, variable) = service(engine)?;
            let line = written.lines().find_map(|line| line.strip_prefix(variable)?.strip_prefix('='));
            env::var(variable).ok().or_else(|| line.map(str::to_owned))
        };
        Self { postgres: url(Engine::Postgres), mariadb: url(Engine::Mariadb), made: Vec::new(), count: 0 }
    }

    /// The database that is there anyway.
    pub(crate) fn home(&self, engine: Engine) -> Outcome<Database> {
        let url = match engine {
            Engine::Sqlite => None,
            Engine::Postgres => self.postgres.clone(),
            Engine::Mariadb => self.mariadb.clone(),
        };
        let name = engine.name();
        let address = url.ok_or_else(|| format!("no {name} is known; `cargo xtask bench` starts one"))?;
        Ok(Database { engine, address })
    }

    fn next(&mut self, engine: Engine) -> Outcome<Database> {
        self.count += 1;
        let home = self.home(engine)?.address;
        // `scheme://user@host:port`, with or without a database.
        let host = match home.splitn(4, '/').collect::<Vec<_>>().as_slice() {
            [scheme, empty, host, ..] => format!("{scheme}/{empty}/{host}"),
            _ => return Err(format!("this is no URL of a server: {home}").into()),
        };
        let address = format!("{host}/{PREFIX}{}_{}", std::process::id(), self.count);
        Ok(Database { engine, address })
    }

    /// An empty one; `path` is for the engine that has files.
    pub(crate) async fn create(&mut self, engine: Engine, path: &Path) -> Outcome<Database> {
        if engine == Engine::Sqlite {
            return Ok(Database::file(path.to_owned()));
        }
        let made = self.next(engine)?;
        let mut connection = self.home(engine)?.open().await?;
        connection.run(&format!("CREATE DATABASE {}", made.name())).await?;
        connection.close().await?;
        self.made.push(made.clone());
        Ok(made)
    }

    /// The same tables with the same rows, on the disk when it returns and not while something is measured.
    pub(crate) async fn copy(&mut self, template: &Database, path: &Path) -> Outcome<Database> {
        match template.engine {
            Engine::Sqlite => {
                fs::copy(&template.address, path)?;
                fs::File::open(path)?.sync_all()?;
                Ok(Database::file(path.to_owned()))
            }
            Engine::Postgres => {
                let made = self.next(template.engine)?;
                let mut connection = self.home(template.engine)?.open().await?;
                // Files and not WAL: it ends with a checkpoint, which is what we want.
                let (name, of) = (made.name(), template.name());
                connection.run(&format!("CREATE DATABASE {name} TEMPLATE {of} STRATEGY FILE_COPY")).await?;
                connection.close().await?;
                self.made.push(made.clone());
                Ok(made)
            }
            Engine::Mariadb => {
                let made = self.create(template.engine, path).await?;
                let mut connection = made.open().await?;
                copy_tables(&mut connection, template.name()).await?;
                connection.close().await?;
                Ok(made)
            }
        }
    }

    pub(crate) async fn drop(&mut self, database: &Database) -> Outcome<()> {
        if database.engine == Engine::Sqlite {
            return Ok(());
        }
        let force = if database.engine == Engine::Postgres { " WITH (FORCE)" } else { "" };
        let mut connection = self.home(database.engine)?.open().await?;
        connection.run(&format!("DROP DATABASE IF EXISTS {}{force}", database.name())).await?;
        connection.close().await?;
        self.made.retain(|made| made.address != database.address);
        Ok(())
    }

    /// Drops what this run has made.
    pub(crate) async fn drop_all(&mut self) -> Outcome<()> {
        for database in self.made.clone() {
            self.drop(&database).await?;
        }
        Ok(())
    }

    /// Drops what runs have left that were killed.
    pub(crate) async fn sweep(&mut self, engine: Engine) -> Outcome<()> {
        let list = match engine {
            Engine::Sqlite => return Ok(()),
            Engine::Postgres => "SELECT datname::text FROM pg_database",
            Engine::Mariadb => "SHOW DATABASES",
        };
        let home = self.home(engine)?;
        let mut connection = home.open().await?;
        let names = connection.texts(list, 0).await?;
        connection.close().await?;
        for name in names {
            let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('_').next());
            if owner.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
                self.drop(&Database { engine, address: format!("/{name}") }).await?;
            }
        }
        Ok(())
    }

    pub(crate) fn made(&self) -> impl Iterator<Item = &str> {
        self.made.iter().map(|database| database.address.as_str())
    }
}

/// MariaDB has no templates: the same definitions, then the rows.
async fn copy_tables(connection: &mut Connection, from: &str) -> Outcome<()> {
    let tables = connection.texts(&format!("SHOW TABLES FROM {from}"), 0).await?;
    for table in &tables {
        let define = connection.texts(&format!("SHOW CREATE TABLE {from}.{table}"), 1).await?;
        connection.run(&define.join("")).await?;
        connection.run(&format!("INSERT INTO {table} SELECT * FROM {from}.{table}")).await?;
    }
    settle(connection, &tables).await
}

/// Statistics are made and pages are written, so that neither happens while something is measured.
pub(crate) async fn settle(connection: &mut Connection, tables: &[String]) -> Outcome<()> {
    match connection.engine() {
        Engine::Sqlite => connection.run("PRAGMA wal_checkpoint(TRUNCATE)").await,
        Engine::Postgres => {
            // Only what was filled: autovacuum does not visit empty tables either, and statistics that say "empty"
            // make other plans than none.
            let filled = "SELECT oid::regclass::text FROM pg_class \
                          WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0";
            for table in connection.texts(filled, 0).await? {
                connection.run(&format!("VACUUM (FREEZE, ANALYZE) {table}")).await?;
            }
            connection.run("CHECKPOINT").await
        }
        Engine::Mariadb if tables.is_empty() => Ok(()),
        Engine::Mariadb => {
            let names = tables.join(", ");
            connection.run(&format!("ANALYZE TABLE {names}")).await?;
            // Waits until every changed page of these tables is in its file.
            connection.run(&format!("FLUSH TABLES {names} FOR EXPORT")).await?;
            connection.run("UNLOCK TABLES").await
        }
    }
}
