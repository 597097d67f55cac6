/** A metric over all judged queries. */
export interface Figure {
  /** Its mean, 0 to 1. */
  mean: number;
  /** The lower end of the 95% bootstrap interval of the mean. */
  low: number;
  /** Its upper end. */
  high: number;
}

/** A query with its answer. */
export interface AnsweredQuery {
  id: string;
  text: string;
  relevant: string[] | null;
  answers: { hits: string[]; ranks: (number | null)[]; no_match: boolean; degraded: boolean }[];
}

/** How well a catalog answers judged queries. */
export interface Evaluation {
  /** The figures by metric, such as `ndcg@10`; none without a judged query. */
  metrics: Record<string, Figure>;
  /** Each query with its answer. */
  queries: AnsweredQuery[];
  /** Percentiles of the time of a search by stage, in milliseconds. */
  latency: Record<string, unknown>;
  /** Number of tools of the catalog. */
  tools: number;
}

/** A judged query. */
export interface JudgedQuery {
  query: string;
  /** The ids of the right tools; none for a query that nothing answers. */
  relevant: string[];
  id?: string;
}
