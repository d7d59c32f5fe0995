//! Tests of the centre through its public surface.
//!
//! Here: the exercise on each engine, `decide` in tables, the embedder's surface, batcher and worker. Not
//! here: channels and HTTP, which have tests at their own boundaries.

mod sqlite;
