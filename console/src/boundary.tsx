import { Component, type ReactNode } from "react";

/** Keeps the shell alive where a page breaks. */
export class Boundary extends Component<{ children: ReactNode }, { error?: Error }> {
  state: { error?: Error } = {};
  static getDerivedStateFromError(error: Error) {
    return { error };
  }
  render() {
    if (!this.state.error) return this.props.children;
    return (
      <div className="notice bad" role="alert">
        <strong>This page broke</strong>
        <p>{this.state.error.message}</p>
        <p>
          <button type="button" className="button" onClick={() => this.setState({ error: undefined })}>
            Try again
          </button>
        </p>
      </div>
    );
  }
}
